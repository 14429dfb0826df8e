/** An inferlet of some attempt. */
export interface Attempted {
  /** A newer attempt has taken its place. */
  superseded(): void;
}

interface Newest {
  epoch: number;
  readonly members: Set<Attempted>;
}

/**
 * The newest attempt of each invocation that has an inferlet open on this host, those of its children included. A runtime that hangs, or
 * whose link is broken, may keep an attempt open that has been given up elsewhere: it must hold nothing beside the one that took its place.
 */
export class Attempts {
  readonly #roots = new Map<string, Newest>();

  get size(): number {
    return this.#roots.size;
  }

  /** An inferlet of this attempt of `root` is open until `leave`. One of an older attempt is superseded: this one at once, or those that are open. */
  enter(root: string, epoch: number, inferlet: Attempted): void {
    const newest = this.#roots.get(root);
    if (!newest) {
      this.#roots.set(root, { epoch, members: new Set([inferlet]) });
      return;
    }
    const older = epoch > newest.epoch ? [...newest.members] : [];
    newest.members.add(inferlet);
    if (epoch < newest.epoch) inferlet.superseded();
    else newest.epoch = epoch;
    for (const one of older) one.superseded();
  }

  leave(root: string, inferlet: Attempted): void {
    const newest = this.#roots.get(root);
    if (newest?.members.delete(inferlet) && newest.members.size === 0) this.#roots.delete(root);
  }
}
