import type { BatchCall } from './call.ts';

/** Ready calls in turns between tenants: one call of each tenant that has any, in its own order. */
export class Rotation {
  /** No line is empty. The tenant whose turn is next comes first. */
  readonly #lines = new Map<string, BatchCall[]>();

  get isEmpty(): boolean {
    return this.#lines.size === 0;
  }

  push(call: BatchCall): void {
    const line = this.#lines.get(call.queue.tenant);
    if (line) line.push(call);
    else this.#lines.set(call.queue.tenant, [call]);
  }

  /** Removes and returns the next call, and moves its tenant behind the others. */
  shift(): BatchCall | undefined {
    for (const [tenant, line] of this.#lines) {
      const call = line.shift();
      this.#lines.delete(tenant);
      if (line.length > 0) this.#lines.set(tenant, line);
      return call;
    }
    return undefined;
  }

  remove(call: BatchCall): void {
    const { tenant } = call.queue;
    const line = this.#lines.get(tenant);
    const index = line?.indexOf(call) ?? -1;
    if (index < 0) return;
    line?.splice(index, 1);
    if (line?.length === 0) this.#lines.delete(tenant);
  }
}
