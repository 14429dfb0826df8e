import type { BatchCall } from './call.ts';

/** Last writer and the readers since, of one resource. Most have one or the other, so a list is made only when it is needed. */
interface Entry {
  writer: BatchCall | undefined;
  readers: BatchCall[] | undefined;
}

const PRUNE_READERS = 16;
const PRUNE_ENTRIES = 4096;

/**
 * Order of arrival between calls of one address space that touch the same resources, one of them writing. A call waits for the calls
 * registered before it; reads of one resource never wait for each other.
 *
 * A lone call costs nothing here: keys are registered only once a second call comes while the first is not done.
 */
export class Scoreboard {
  #entries = new Map<number, Entry>();
  #sole: BatchCall | undefined;
  #size = 0;
  #prunedAt = PRUNE_ENTRIES;

  /** Calls that are not done. */
  get size(): number {
    return this.#size;
  }

  add(call: BatchCall): void {
    this.#size++;
    if (this.#size === 1) {
      this.#sole = call;
      return;
    }
    if (this.#sole && !this.#sole.registered) this.#register(this.#sole);
    this.#sole = undefined;
    this.#register(call);
  }

  /** The call is done (or dropped); `freed` is told each call that now waits for nobody. */
  remove(call: BatchCall, freed: (call: BatchCall) => void): void {
    this.#size--;
    if (this.#sole === call) this.#sole = undefined;
    if (this.#size === 0) {
      this.#entries.clear();
      this.#prunedAt = PRUNE_ENTRIES;
    }
    const { dependents } = call;
    if (!dependents) return;
    call.dependents = undefined;
    for (const dependent of dependents) if (--dependent.blockers === 0) freed(dependent);
  }

  #register(call: BatchCall): void {
    call.registered = true;
    call.visitKeys((key, writes) => {
      const entry = this.#entries.get(key);
      if (!entry) {
        this.#entries.set(key, writes ? { writer: call, readers: undefined } : { writer: undefined, readers: [call] });
        return;
      }
      // It writes and reads the same: the write says it all.
      if (entry.writer === call) return;
      if (entry.writer) block(entry.writer, call);
      if (writes) {
        for (const reader of entry.readers ?? []) block(reader, call);
        entry.writer = call;
        entry.readers = undefined;
      } else addReader(entry, call);
    });
    if (this.#entries.size > this.#prunedAt) this.#prune();
  }

  #prune(): void {
    for (const [key, entry] of this.#entries) {
      if (entry.writer?.state === 'done') entry.writer = undefined;
      entry.readers = entry.readers?.filter((reader) => reader.state !== 'done');
      if (!entry.writer && !entry.readers?.length) this.#entries.delete(key);
    }
    this.#prunedAt = Math.max(PRUNE_ENTRIES, this.#entries.size * 2);
  }
}

function addReader(entry: Entry, call: BatchCall): void {
  if (!entry.readers) {
    entry.readers = [call];
    return;
  }
  if (entry.readers.at(-1) === call) return;
  if (entry.readers.length >= PRUNE_READERS) entry.readers = entry.readers.filter((reader) => reader.state !== 'done');
  entry.readers.push(call);
}

/** `later` waits for `earlier`, once, unless that is done or is itself. */
function block(earlier: BatchCall, later: BatchCall): void {
  if (earlier === later || earlier.state === 'done') return;
  earlier.dependents ??= [];
  // All waits of one call are made in one go, so an earlier one for the same call is the last in the list.
  if (earlier.dependents.at(-1) === later) return;
  earlier.dependents.push(later);
  later.blockers++;
}
