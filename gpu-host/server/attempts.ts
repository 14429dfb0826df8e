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
 * The newest attempt of each root invocation that has an inferlet open on this host; its children's inferlets belong to
 * its attempts. A runtime that hangs, or whose link is broken, may keep an attempt open that the scheduler has given
 * up: this old attempt must hold nothing beside its replacement.
 */
export class Attempts {
  readonly #roots = new Map<string, NewestAttempt>();

  get size(): number {
    return this.#roots.size;
  }

  /**
   * Registers an inferlet of attempt `epoch` of `root` until `leave`. Supersedes the inferlets of all attempts
   * older than the newest one, this inferlet included.
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
