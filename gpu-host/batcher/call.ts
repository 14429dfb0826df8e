/**
 * Kinds of calls, by their use of the device.
 * A call that needs no step begins between two batches, since memory must not change under the device. Only instant calls that the engine picks
 * begin during a batch.
 * - `instant`: needs no step (allocate, free, embed); may go on, for example on a disk, while later batches compute.
 * - `barrier`: an instant call that begins once every earlier call of its queue has completed (synchronize).
 * - `idle`: needs no step, and touches memory between two batches only (slot copies).
 * - `project`: turns a state into a distribution.
 * - `encode`: turns images into embeds.
 * - `forward`: runs inputs through the transformer.
 */
export type CallKind = 'instant' | 'barrier' | 'idle' | 'project' | 'encode' | 'forward';

/** `queued` behind others; `ready` to go; `running` on the device; `paused` until it is resumed; `done`. */
type CallState = 'queued' | 'ready' | 'running' | 'paused' | 'done';

/**
 * A call's access to a page or an embed: `read`; `fill`, which puts keys and values into empty slots of a page; `write` for any other change.
 * A call with several kinds of access to one key may name it several times; `write` and `fill` of one key exclude each other.
 */
export type Access = 'read' | 'write' | 'fill';

/** Receives the resources that a call touches. Handlers choose the keys; equal keys mean the same page or embed. */
export type KeyVisitor = (key: number, access: Access) => void;

/** A call as the batcher sees it. The handlers extend it with the call's work. */
export abstract class BatchCall {
  readonly kind: CallKind;
  readonly queue: BatchQueue;
  /** Order of arrival over all queues. */
  arrival = 0;
  /**
   * Time of arrival, or of the last token of a run (a forward that decodes token after token); milliseconds of the
   * batcher's clock.
   */
  arrivedMs = 0;
  /** Depth of the call's node in the graph of a workflow, see `Batcher.setDepth`; undefined for a call outside workflows. */
  depth: number | undefined;
  /** Order among equally urgent calls, smallest first. Equals `arrival` until the call takes another call's turn (`urgency.ts`). */
  turn = 0;
  /** Milliseconds by which the call counts as arrived later (negative: earlier), because it took another call's turn. */
  yieldMs = 0;
  /** Latency target of each of the call's steps, milliseconds; set once it is ready, if its queue has targets. */
  targetMs: number | undefined;
  state: CallState = 'queued';
  /** Number of earlier unfinished calls that this one waits for. */
  blockers = 0;
  /** Later calls that may go only when this one is done. */
  dependents: BatchCall[] | undefined;
  /** Undefined on most calls. Set on calls with soft conflicts and, when `Scoreboard.isRanked`, on calls that wait or that were lent urgency. */
  links: CallLinks | undefined;

  constructor(kind: CallKind, queue: BatchQueue) {
    this.kind = kind;
    this.queue = queue;
  }

  /** Inputs still to compute; a batch's token limit counts these. */
  abstract get tokens(): number;

  /** Maximum inputs that one batch computes of the call if the call can be cut; at least 1. The batcher asks only about ready calls. */
  get stepTokens(): number {
    return Number.POSITIVE_INFINITY;
  }

  /** As `stepTokens`, while calls of other queues share the device: these wait for each step. At most `stepTokens`, which is the default. */
  get besideTokens(): number {
    return this.stepTokens;
  }

  /** Tokens whose scores the call returns; a batch bounds their sum. */
  get scores(): number {
    return 0;
  }

  /**
   * True when the call may be cut at any input. The batcher asks only when every call that this one waits for is done, because the inputs are known
   * then. The batcher never cuts a call that follows another call of the same batch.
   */
  abstract chunkable(): boolean;

  /** True when the call goes on after its `tokens` are done and keeps its place in its queue (a run). */
  abstract get continues(): boolean;

  /**
   * The forward's adapter, on a backend whose batches can have only one adapter; undefined for the model alone and for all other calls.
   * Forwards of different variants never share a batch.
   */
  get variant(): string | undefined {
    return undefined;
  }

  /**
   * The pages that the call computes next; undefined when it gives none to others. The batcher reads this value from ready calls while it chooses a
   * batch, and the value must stay the same until that batch leaves.
   */
  get pagesAhead(): PagesAhead | undefined {
    return undefined;
  }

  /**
   * Called when the call's turn has come. Takes what the call needs apart from the results of earlier calls, such as an adapter or the pixels of
   * an image. False when something is missing: the batcher then pauses the call until it is resumed, and the call keeps what it took.
   */
  acquire(): boolean {
    return true;
  }

  /**
   * Called when the call must wait again after its turn had come; it has no step under way. Gives back what `acquire` took, since other calls may
   * need it meanwhile; `acquire` takes it again before the call goes.
   */
  parked(): void {}

  abstract visitKeys(visit: KeyVisitor): void;
}

/** True when no later call has to wait for this one: it is done (or dropped), and so are all calls that it waited for. */
export function isReleased(call: BatchCall): boolean {
  return call.state === 'done' && call.blockers === 0;
}

/** True when the call computes on the device. */
export function isDeviceCall(call: BatchCall): boolean {
  return call.kind === 'forward' || call.kind === 'project' || call.kind === 'encode';
}

/** True when a batch that computes `tokens` inputs of the call is the call's last batch. */
export function leavesWith(call: BatchCall, tokens: number): boolean {
  return !call.continues && tokens === call.tokens;
}

/** A later call that may go into the same batch as an earlier call, behind it. The earlier call keeps the edge in `softDependents`. */
interface SoftEdge {
  readonly later: BatchCall;
  /** True when the later call reads or fills a page that the earlier one fills; false when it only fills a page that the earlier one reads. */
  needs: boolean;
}

/** A call's relations to other calls, apart from `BatchCall.dependents`. Most calls have none. */
class CallLinks {
  /** Later calls that may go once this one is done or precedes them in a batch. */
  softDependents: SoftEdge[] | undefined;
  /** Earlier calls that this one waited for when it came, some of them done by now; kept only for calls of a ranked scoreboard. */
  waitsFor: BatchCall[] | undefined;
  /** Urgency (`urgency.ts`: milliseconds, smaller goes first) lent by a call that waits for this one; undefined until a more urgent call waits. */
  lentMs: number | undefined;
  /** Number of calls that this one follows in the batch under construction. */
  follows = 0;
  /** The calls among the followed ones whose keys and values this call needs. */
  needs: BatchCall[] | undefined;
}

export function linksOf(call: BatchCall): CallLinks {
  call.links ??= new CallLinks();
  return call.links;
}

/** Maximum length of the array that an empty queue keeps, and minimum number of empty entries at the front that are worth removing. */
const KEPT_ROOM = 64;

/**
 * The calls of one queue of an inferlet, in order. A call *leaves* when a batch takes its last input, or when it begins
 * without a step.
 */
export class BatchQueue {
  readonly scoreboard: Scoreboard;
  /** `priority` is clamped to ±`maxPriority`. */
  readonly maxPriority: number;
  readonly tenant: string;
  /** Targets of the queue's calls; undefined for ordinary ones. */
  readonly targets: LatencyTargets | undefined;
  /** Rank of the queue's query (a root inferlet with its children) among its tenant's queries: the smaller, the earlier. */
  readonly query: number;
  priority = 0;
  /** Depth that the calls pushed from now on get; undefined outside workflows. */
  depth: number | undefined;
  /** Calls that left the queue and are not done. */
  outstanding = 0;
  /** Outstanding calls that were held, and go again when they are resumed. */
  readonly heldCalls = new Set<BatchCall>();
  /** Time at which results emptied the queue, so that its next call can be expected; undefined otherwise. */
  answeredMs: number | undefined;
  /** Usual time until the queue's next call, milliseconds; undefined until seen once. */
  responseMs: number | undefined;
  /** Calls at `#head` up to `#tail` (exclusive) have not left. The list keeps its capacity: most queues alternate between no call and one. */
  #calls: (BatchCall | undefined)[] = [];
  #head = 0;
  #tail = 0;

  constructor(scoreboard: Scoreboard, maxPriority: number, tenant: string, query: number, targets?: LatencyTargets) {
    this.scoreboard = scoreboard;
    this.maxPriority = maxPriority;
    this.tenant = tenant;
    this.query = query;
    this.targets = targets;
  }

  get front(): BatchCall | undefined {
    return this.#head < this.#tail ? this.#calls[this.#head] : undefined;
  }

  /** Calls that have not left. */
  get length(): number {
    return this.#tail - this.#head;
  }

  push(call: BatchCall): void {
    this.#calls[this.#tail++] = call;
  }

  shift(): void {
    this.#calls[this.#head++] = undefined;
    if (this.#head === this.#tail) {
      if (this.#calls.length > KEPT_ROOM) this.#calls = [];
      this.#head = 0;
      this.#tail = 0;
    } else if (this.#head >= KEPT_ROOM && this.#head * 2 > this.#tail) {
      this.#calls = this.#calls.slice(this.#head, this.#tail);
      this.#head = 0;
      this.#tail = this.#calls.length;
    }
  }

  /**
   * Removes and returns the held calls and then, in order, every call that has not left. Calls on the device remain, because they will be
   * finished.
   */
  clear(): BatchCall[] {
    const removedHeld = [...this.heldCalls].filter(({ state }) => state !== 'running');
    for (const call of removedHeld) this.heldCalls.delete(call);
    this.outstanding -= removedHeld.length;
    const calls = this.#calls.slice(this.#head, this.#tail) as BatchCall[];
    const runningCall = calls[0]?.state === 'running' ? calls.shift() : undefined;
    this.#calls = runningCall ? [runningCall] : [];
    this.#head = 0;
    this.#tail = this.#calls.length;
    return [...removedHeld, ...calls];
  }

  each(visit: (call: BatchCall) => void): void {
    for (const call of this.heldCalls) visit(call);
    for (let i = this.#head; i < this.#tail; i++) visit(this.#calls[i] as BatchCall);
  }

  /** Visits the calls ahead of `call`, the nearest first, while `visit` returns true. */
  eachAhead(call: BatchCall, visit: (ahead: BatchCall) => boolean): void {
    for (let i = this.#indexOf(call) - 1; i >= this.#head; i--) if (!visit(this.#calls[i] as BatchCall)) return;
  }

  /** Index of the call, or the index that it would have if it had not left: calls are in order of arrival. */
  #indexOf(call: BatchCall): number {
    let from = this.#head;
    let to = this.#tail;
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#calls[middle] as BatchCall).arrival < call.arrival) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

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

/** The whole pages of a text that a call computes next, and that others may then take instead of computing them again. */
export interface PagesAhead {
  /** Only calls of one scope share pages. */
  readonly scope: string;
  /** Inputs of a page. */
  readonly pageTokens: number;
  /**
   * A key per page, in order; a long text has keys for its first pages only. Equal keys of one scope mean equal pages: the same text from its
   * beginning to the end of the page.
   */
  readonly keys: readonly number[];
  /** Number of its first pages that this call may take from other calls, once the pages exist. */
  readonly takes: number;
  /** True when the call has computed some of its inputs; it then computes the rest itself. */
  readonly begun: boolean;
}

/** Latency targets of an inferlet's calls, milliseconds from a call's arrival to the end of its step. */
export interface LatencyTargets {
  /** For calls that encode an image, and for calls of several inputs, which may compute a prompt. */
  readonly firstTokenMs: number;
  /**
   * For calls of one input, for each step of a run, and for calls that only project states. A short call of several inputs may also verify
   * guessed tokens, so the smaller of both targets holds for it.
   */
  readonly perTokenMs: number;
}
