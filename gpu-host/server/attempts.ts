/** An inferlet of an attempt. */
export interface Attempted {
  /** Called when a newer attempt has replaced this one. */
  superseded(): void;
}

interface Newest {
  epoch: number;
  readonly members: Set<Attempted>;
}

/**
 * The newest attempt of each invocation that has an inferlet open on this host, including its children's. A runtime that hangs, or whose
 * link is broken, may keep an attempt open that the scheduler has given up: it must hold nothing beside the attempt that replaced it.
 */
export class Attempts {
  readonly #roots = new Map<string, Newest>();

  get size(): number {
    return this.#roots.size;
  }

  /** Registers an inferlet of this attempt of `root` until `leave`. Supersedes older attempts: this one, or the open ones. */
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
