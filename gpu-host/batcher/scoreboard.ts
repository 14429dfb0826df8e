import { type Access, type BatchCall, isReleased } from './call.ts';
import { linksOf } from './links.ts';

/** Last call that changed one resource, and the readers since. Most resources have only one of them, so lists are made on demand. */
interface Entry {
  writer: BatchCall | undefined;
  /** True when the writer only fills empty slots. */
  fills: boolean;
  readers: BatchCall[] | undefined;
  /** Length at which finished readers are removed; then twice the remaining length, so that the cost per call stays constant. */
  prunedAt: number;
}

const PRUNE_READERS = 16;
const PRUNE_ENTRIES = 4096;

/**
 * Order of arrival between calls of one address space that touch the same resources, unless both only read.
 *
 * A later call waits until the earlier one is done. The wait is *soft* between two forwards when neither continues, at least one fills a
 * page's empty slots, and neither writes in another way. Both may then be in one batch, the earlier first, since keys and values
 * precede attention in every layer.
 *
 * A lone call costs nothing here: keys are registered only once a second call comes while the first is not done.
 */
export class Scoreboard {
  /** True once queues of the space differ in priority: calls then lend their urgency to those that they wait for. */
  ranked = false;
  #entries = new Map<number, Entry>();
  #sole: BatchCall | undefined;
  #size = 0;
  #prunedAt = PRUNE_ENTRIES;

  /** Number of unfinished calls, and of calls finished or dropped before a call that they waited for. */
  get size(): number {
    return this.#size;
  }

  add(call: BatchCall): void {
    this.#size++;
    if (this.#size === 1) {
      this.#sole = call;
      return;
    }
    if (this.#sole) this.#register(this.#sole);
    this.#sole = undefined;
    this.#register(call);
  }

  /**
   * Removes a finished or dropped call; `freed` receives each call that now waits for no other. A call that ends before one that it waits
   * for (dropped, or failed before its predecessor in the batch) keeps its place until that one is done: its dependents wait for both.
   */
  remove(call: BatchCall, freed: (call: BatchCall) => void): void {
    if (this.#sole === call) this.#sole = undefined;
    if (call.blockers > 0) return;
    for (let gone = this.#release(call, freed); gone; ) {
      const before: BatchCall[] = gone;
      gone = undefined;
      for (const next of before) {
        const more = this.#release(next, freed);
        if (more) gone = gone ? gone.concat(more) : more;
      }
    }
    if (this.#size > 0 || this.#entries.size === 0) return;
    this.#entries.clear();
    this.#prunedAt = PRUNE_ENTRIES;
  }

  /** Unblocks the call's dependents. Returns those that ended earlier and now block no call either. */
  #release(call: BatchCall, freed: (call: BatchCall) => void): BatchCall[] | undefined {
    this.#size--;
    const { dependents, links } = call;
    if (!dependents && !links) return undefined;
    call.dependents = undefined;
    call.links = undefined;
    let gone: BatchCall[] | undefined;
    if (dependents) for (const later of dependents) gone = unblock(later, freed, gone);
    if (links?.softDependents) for (const { later } of links.softDependents) gone = unblock(later, freed, gone);
    return gone;
  }

  #register(call: BatchCall): void {
    const sharesBatch = mayShareBatch(call);
    call.visitKeys((key, access) => {
      const entry = this.#entries.get(key);
      if (!entry) this.#entries.set(key, newEntry(call, access));
      // A call that changes and reads the same resource counts as a change.
      else if (entry.writer !== call) this.#order(entry, call, access, sharesBatch && access !== 'write');
    });
    if (this.#entries.size > this.#prunedAt) this.#prune();
  }

  #order(entry: Entry, call: BatchCall, access: Access, sharesBatch: boolean): void {
    const { writer, readers } = entry;
    if (writer) {
      if (sharesBatch && entry.fills && mayShareBatch(writer)) this.#blockSoftly(writer, call, true);
      else this.#block(writer, call);
    }
    if (access === 'read') {
      addReader(entry, call);
      return;
    }
    if (readers) {
      for (const reader of readers) {
        if (sharesBatch && mayShareBatch(reader)) this.#blockSoftly(reader, call, false);
        else this.#block(reader, call);
      }
    }
    entry.writer = call;
    entry.fills = access === 'fill';
    entry.readers = undefined;
    entry.prunedAt = PRUNE_READERS;
  }

  // A call adds all its waits in one go, so an earlier wait of the same pair of calls is the last in its list.

  /** Makes `later` wait until `earlier` is done, unless it is done already or is the same call. */
  #block(earlier: BatchCall, later: BatchCall): void {
    if (earlier === later || isReleased(earlier)) return;
    if (earlier.dependents?.at(-1) === later) return;
    const soft = earlier.links?.softDependents;
    if (soft?.at(-1)?.later === later) soft.pop();
    else this.#count(earlier, later);
    if (earlier.dependents) earlier.dependents.push(later);
    else earlier.dependents = [later];
  }

  /** Makes `later` wait until `earlier` is done or precedes it in a batch. It `needs` what `earlier` fills, or only follows its reads. */
  #blockSoftly(earlier: BatchCall, later: BatchCall, needs: boolean): void {
    if (earlier === later || isReleased(earlier)) return;
    if (earlier.dependents?.at(-1) === later) return;
    const links = linksOf(earlier);
    links.softDependents ??= [];
    const last = links.softDependents.at(-1);
    if (last?.later === later) {
      last.needs ||= needs;
      return;
    }
    links.softDependents.push({ later, needs });
    this.#count(earlier, later);
  }

  #count(earlier: BatchCall, later: BatchCall): void {
    later.blockers++;
    if (!this.ranked) return;
    const links = linksOf(later);
    links.waitsFor ??= [];
    links.waitsFor.push(earlier);
  }

  #prune(): void {
    for (const [key, entry] of this.#entries) {
      if (entry.writer && isReleased(entry.writer)) entry.writer = undefined;
      entry.readers = entry.readers?.filter((reader) => !isReleased(reader));
      if (!entry.writer && !entry.readers?.length) this.#entries.delete(key);
    }
    this.#prunedAt = Math.max(PRUNE_ENTRIES, this.#entries.size * 2);
  }
}

/** Removes one blocker of `later`. After the last, `later` is freed, or joins `gone` when it is done. */
function unblock(
  later: BatchCall,
  freed: (call: BatchCall) => void,
  gone: BatchCall[] | undefined,
): BatchCall[] | undefined {
  if (--later.blockers > 0) return gone;
  if (later.state !== 'done') {
    freed(later);
    return gone;
  }
  if (!gone) return [later];
  gone.push(later);
  return gone;
}

/** True when the call can share a batch with another that touches the same pages. */
function mayShareBatch(call: BatchCall): boolean {
  return call.kind === 'forward' && !call.continues;
}

function newEntry(call: BatchCall, access: Access): Entry {
  return access === 'read'
    ? { writer: undefined, fills: false, readers: [call], prunedAt: PRUNE_READERS }
    : { writer: call, fills: access === 'fill', readers: undefined, prunedAt: PRUNE_READERS };
}

function addReader(entry: Entry, call: BatchCall): void {
  if (!entry.readers) {
    entry.readers = [call];
    return;
  }
  if (entry.readers.at(-1) === call) return;
  if (entry.readers.length >= entry.prunedAt) {
    entry.readers = entry.readers.filter((reader) => !isReleased(reader));
    entry.prunedAt = Math.max(PRUNE_READERS, entry.readers.length * 2);
  }
  entry.readers.push(call);
}
