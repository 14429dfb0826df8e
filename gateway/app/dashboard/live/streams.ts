import { GatewayError } from '../../errors/gateway-error.ts';

/** Pages that one key follows at once, and all keys together. */
const MAX_OF_KEY = 24;
const MAX_OF_ALL = 1000;

/** Counts the pages that are followed. */
export class Streams {
  readonly #byKey = new Map<string, number>();
  #all = 0;

  /** Returns what gives the place back; throws `too-many-requests`. */
  enter(keyId: string): () => void {
    const held = this.#byKey.get(keyId) ?? 0;
    if (held >= MAX_OF_KEY || this.#all >= MAX_OF_ALL)
      throw new GatewayError('too-many-requests', 'Too many pages of the dashboard are followed at once.', {
        hint: 'Close some of them, then reload this one.',
      });
    this.#byKey.set(keyId, held + 1);
    this.#all += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#all -= 1;
      const rest = (this.#byKey.get(keyId) ?? 1) - 1;
      if (rest === 0) this.#byKey.delete(keyId);
      else this.#byKey.set(keyId, rest);
    };
  }
}
