import { type Access, type BatchCall, isReleased } from './call.ts';
import { linksOf } from './links.ts';
import type { BatchQueue } from './queue.ts';

/** The last call that changed a resource, and the calls that have read it since. Most resources have one or the other: lists are made on demand. */
interface Entry {
  writer: BatchCall | undefined;
  /** True when the writer only fills empty slots. */
  fills: boolean;
  readers: BatchCall[] | undefined;
  /**
   * Number of readers at which the finished ones are removed: twice the number that remained last time, so that the cost per call stays
   * constant, and at least `PRUNE_READERS`.
   */
  prunedAt: number;
}

/** Least number of readers of an entry at which the finished ones are removed. */
const PRUNE_READERS = 16;
/** Least number of entries at which the entries without an unfinished call are removed. */
const PRUNE_ENTRIES = 4096;

/**
 * Keeps two calls of one address space in their order of arrival when they touch the same resource, unless both only read it.
 *
 * A later call waits until the earlier one is done. The wait is *soft* between two forwards when neither is a run, at least one fills a
 * page's empty slots, and neither writes in another way. Both may then be in one batch, the earlier first, since every layer writes the keys
 * and values of the whole batch before its attention reads them.
 *
 * A lone call costs nothing here: keys are registered only once a second call comes while the first is not done.
 */
export class Scoreboard {
  /** True once a queue of the space has used a priority or a depth. Calls then lend their urgency to those that they wait for. */
  isRanked = false;
  #entries = new Map<number, Entry>();
  #soleCall: BatchCall | undefined;
  #size = 0;
  #prunedAt = PRUNE_ENTRIES;

  /** Number of unfinished calls, and of calls finished or dropped before a call that they waited for. */
  get size(): number {
    return this.#size;
  }

  /**
   * Sets `isRanked`, and notes for each waiting call of the space the calls that it waits for.
   * @param queues the queues of this space, and any others
   */
  rank(queues: Iterable<BatchQueue>): void {
    if (this.isRanked) return;
    this.isRanked = true;
    for (const queue of queues) {
      if (queue.scoreboard !== this) continue;
      queue.each((earlier) => {
        for (const later of earlier.dependents ?? []) noteWait(later, earlier);
        for (const { later } of earlier.links?.softDependents ?? []) noteWait(later, earlier);
      });
    }
  }

  add(call: BatchCall): void {
    this.#size++;
    if (this.#size === 1) {
      this.#soleCall = call;
      return;
    }
    if (this.#soleCall) this.#register(this.#soleCall);
    this.#soleCall = undefined;
    this.#register(call);
  }

  /**
   * Removes a finished or dropped call; `onFreed` receives each call that now waits for no other. A call that ends before one that it waits
   * for (dropped, or failed before its predecessor in the batch) keeps its place until that one is done: its dependents wait for both.
   */
  remove(call: BatchCall, onFreed: (call: BatchCall) => void): void {
    if (this.#soleCall === call) this.#soleCall = undefined;
    if (call.blockers > 0) return;
    for (let endedCalls = this.#release(call, onFreed); endedCalls; ) {
      const releasedCalls: BatchCall[] = endedCalls;
      endedCalls = undefined;
      for (const next of releasedCalls) {
        const newlyEnded = this.#release(next, onFreed);
        if (newlyEnded) endedCalls = endedCalls ? endedCalls.concat(newlyEnded) : newlyEnded;
      }
    }
    if (this.#size > 0 || this.#entries.size === 0) return;
    this.#entries.clear();
    this.#prunedAt = PRUNE_ENTRIES;
  }

  /** Unblocks the call's dependents. Returns those that ended earlier and now wait for no other call: they are next to be released. */
  #release(call: BatchCall, onFreed: (call: BatchCall) => void): BatchCall[] | undefined {
    this.#size--;
    const { dependents, links } = call;
    if (!dependents && !links) return undefined;
    call.dependents = undefined;
    call.links = undefined;
    let endedCalls: BatchCall[] | undefined;
    if (dependents) for (const later of dependents) endedCalls = unblock(later, onFreed, endedCalls);
    if (links?.softDependents)
      for (const { later } of links.softDependents) endedCalls = unblock(later, onFreed, endedCalls);
    return endedCalls;
  }

  #register(call: BatchCall): void {
    const sharesBatch = mayShareBatch(call);
    call.visitKeys((key, access) => {
      const entry = this.#entries.get(key);
      if (!entry) this.#entries.set(key, newEntry(call, access));
      // A call that changes a resource and then reads it is the resource's writer only.
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

  // A call adds all its waits in one go. So if `later` waits for `earlier` already, `later` is the last entry in one of the lists of `earlier`.

  /** Makes `later` wait until `earlier` is done, unless it is done already or is the same call. */
  #block(earlier: BatchCall, later: BatchCall): void {
    if (earlier === later || isReleased(earlier)) return;
    if (earlier.dependents?.at(-1) === later) return;
    const softDependents = earlier.links?.softDependents;
    if (softDependents?.at(-1)?.later === later) softDependents.pop();
    else this.#addBlocker(earlier, later);
    if (earlier.dependents) earlier.dependents.push(later);
    else earlier.dependents = [later];
  }

  /** Makes `later` wait until `earlier` is done or precedes it in a batch. For `needs` see `SoftEdge`. */
  #blockSoftly(earlier: BatchCall, later: BatchCall, needs: boolean): void {
    if (earlier === later || isReleased(earlier)) return;
    if (earlier.dependents?.at(-1) === later) return;
    const links = linksOf(earlier);
    links.softDependents ??= [];
    const lastDependent = links.softDependents.at(-1);
    if (lastDependent?.later === later) {
      lastDependent.needs ||= needs;
      return;
    }
    links.softDependents.push({ later, needs });
    this.#addBlocker(earlier, later);
  }

  #addBlocker(earlier: BatchCall, later: BatchCall): void {
    later.blockers++;
    if (this.isRanked) noteWait(later, earlier);
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

function noteWait(later: BatchCall, earlier: BatchCall): void {
  const links = linksOf(later);
  links.waitsFor ??= [];
  links.waitsFor.push(earlier);
}

/** Removes one blocker of `later`. When none remains, `onFreed` receives `later`; if `later` is done already, it joins the returned list instead. */
function unblock(
  later: BatchCall,
  onFreed: (call: BatchCall) => void,
  endedCalls: BatchCall[] | undefined,
): BatchCall[] | undefined {
  if (--later.blockers > 0) return endedCalls;
  if (later.state !== 'done') {
    onFreed(later);
    return endedCalls;
  }
  if (!endedCalls) return [later];
  endedCalls.push(later);
  return endedCalls;
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
