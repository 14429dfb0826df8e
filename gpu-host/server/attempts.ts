/** An inferlet of an attempt. */
export interface Attempted {
  /** Called when a newer attempt has replaced this one. */
  superseded(): void;
}

interface NewestAttempt {
  epoch: number;
  readonly members: Set<Attempted>;
}

/**
 * Keeps the newest attempt of each root invocation that has inferlets open on this host; the inferlets of children belong to the root's attempts.
 * A runtime that hangs, or whose link is broken, may keep an attempt open that the scheduler has given up. The host ends the inferlets of such an
 * attempt when a newer attempt opens one, so that the old attempt holds no memory beside its replacement.
 */
export class Attempts {
  readonly #roots = new Map<string, NewestAttempt>();

  get size(): number {
    return this.#roots.size;
  }

  /**
   * Registers an inferlet of attempt `epoch` of `root` until `leave`. Supersedes the inferlets of older attempts; when a newer attempt is known,
   * supersedes this inferlet.
   */
  enter(root: string, epoch: number, inferlet: Attempted): void {
    const newest = this.#roots.get(root);
    if (!newest) {
      this.#roots.set(root, { epoch, members: new Set([inferlet]) });
      return;
    }
    const olderInferlets = epoch > newest.epoch ? [...newest.members] : [];
    newest.members.add(inferlet);
    if (epoch < newest.epoch) inferlet.superseded();
    else newest.epoch = epoch;
    for (const one of olderInferlets) one.superseded();
  }

  leave(root: string, inferlet: Attempted): void {
    const newest = this.#roots.get(root);
    if (newest?.members.delete(inferlet) && newest.members.size === 0) this.#roots.delete(root);
  }
}
