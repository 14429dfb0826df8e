import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

/** A restore that has not renewed its lease for so long has died. */
const LEASE_MS = 15_000;
const RENEWALS_PER_LEASE = 5;

const BEGIN = loadScript(new URL('./scripts/begin-restore.lua', import.meta.url));

/** Another restore writes into the same Redis. */
export class RestoreRuns extends Error {
  override readonly name = 'RestoreRuns';
  readonly holder: string;

  constructor(holder: string) {
    super(`Another restore runs: that of ${holder}.`);
    this.holder = holder;
  }
}

/**
 * The mark of a restore in the Redis that it writes: no supervisor of any machine claims its name there meanwhile, nor after a restore that
 * broke off and left a part of the platform.
 */
export class RestoreMark {
  readonly #store: Store;
  readonly #wasLeft: boolean;
  readonly #timer: NodeJS.Timeout;
  #hasChanged = false;
  #isWhole = false;

  private constructor(store: Store, holder: string, wasLeft: boolean) {
    this.#store = store;
    this.#wasLeft = wasLeft;
    // A renewal that fails is followed by another, or by the failure of the restore's own writes.
    this.#timer = setInterval(() => void begin(store, holder).catch(() => undefined), LEASE_MS / RENEWALS_PER_LEASE);
  }

  /**
   * @param holder who restores, for messages: unique among restores that run at the same time
   * @throws RestoreRuns
   */
  static async set(store: Store, holder: string): Promise<RestoreMark> {
    const [state, value] = await begin(store, holder);
    if (state === 'held') throw new RestoreRuns(value);
    return new RestoreMark(store, holder, value === '1');
  }

  /** Keys that a restore must leave when it removes those of the platform. */
  get keys(): readonly string[] {
    return keysOf(this.#store);
  }

  /** The restore begins to change the platform. */
  changes(): void {
    this.#hasChanged = true;
  }

  /** The platform is whole again: restored, or removed. */
  whole(): void {
    this.#isWhole = true;
  }

  /** Ends the lease, and removes the mark unless a part of a platform is left. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    const [lease = '', mark = ''] = this.keys;
    const isPartLeft = this.#hasChanged ? !this.#isWhole : this.#wasLeft;
    await this.#store.call((redis) => (isPartLeft ? redis.del(lease) : redis.del(lease, mark)));
  }
}

const keysOf = ({ keys }: Store): string[] => [keys.restoreLease, keys.restoreMark];

async function begin(store: Store, holder: string): Promise<[state: string, value: string]> {
  const [state, value] = (await store.script(BEGIN, keysOf(store), [holder, LEASE_MS])) as string[];
  return [String(state), String(value)];
}
