import { Shares } from '#scheduler/policies/shares.ts';
import { GatewayError, type GatewayErrorOptions } from '../errors/gateway-error.ts';

/** Maximum numbers of answers that may be open at once. */
export interface StreamLimits {
  /** Answers to one key. */
  readonly streamsPerKey: number;
  /** Answers to all keys. A tenant may have a quarter of them, and more while all tenants together have at most half. */
  readonly streams: number;
}

/** Counts answers that stay open: event streams, and answers that wait for an outcome. */
export class OpenStreams {
  readonly limits: StreamLimits;
  readonly #answersName: string;
  readonly #byKey = new Map<string, number>();
  readonly #shares: Shares;

  /** @param answersName plural noun for the answers in errors, such as `streams` */
  constructor(limits: StreamLimits, answersName: string) {
    this.limits = limits;
    this.#answersName = answersName;
    this.#shares = new Shares(limits.streams);
  }

  /** Number of open answers. */
  get open(): number {
    return this.#shares.total;
  }

  /**
   * Takes a slot. Returns the function that frees it, which is safe to call more than once.
   *
   * @throws GatewayError `too-many-requests` when the key or its tenant has too many open answers, `gateway-busy` when
   *   all tenants together have too many
   */
  enter({ keyId, tenant }: { readonly keyId: string; readonly tenant: string }): () => void {
    const openCount = this.#byKey.get(keyId) ?? 0;
    const options: GatewayErrorOptions = {
      hint: `Close some ${this.#answersName}, or wait until they end, then try again.`,
    };
    if (openCount >= this.limits.streamsPerKey)
      throw new GatewayError(
        'too-many-requests',
        `The API key ${keyId} has ${openCount} open ${this.#answersName}, the maximum.`,
        options,
      );
    if (!this.#shares.enter(tenant)) {
      if (this.open >= this.limits.streams)
        throw new GatewayError('gateway-busy', `The gateway has ${this.open} open ${this.#answersName}, the maximum.`);
      throw new GatewayError(
        'too-many-requests',
        `The tenant ${tenant} has its maximum number of open ${this.#answersName}.`,
        options,
      );
    }
    this.#byKey.set(keyId, openCount + 1);
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      this.#shares.leave(tenant);
      const remainingCount = (this.#byKey.get(keyId) ?? 1) - 1;
      if (remainingCount === 0) this.#byKey.delete(keyId);
      else this.#byKey.set(keyId, remainingCount);
    };
  }
}
