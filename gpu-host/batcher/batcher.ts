import type { GracePolicy } from './adaptive.ts';
import {
  admitFollowers,
  type Batch,
  type Decision,
  dismissFollowers,
  type Grant,
  IDLE,
  NOTHING,
  type RideCounts,
  tenantsOf,
} from './batch.ts';
import { type BatchCall, BatchQueue, type LatencyTargets, leavesWith, type Scoreboard } from './call.ts';
import { Departure } from './departure.ts';
import { postponeWaiters } from './pages-ahead.ts';
import { Rotation, VariantTurns } from './rotation.ts';
import {
  type BatchLimits,
  type BatchRoom,
  DEFAULT_LIMITS,
  mostShortTokens,
  roomForEncodings,
  roomForProjections,
  selectForwards,
} from './select.ts';
import { LatencyTurns } from './targets.ts';
import { isMoreUrgent, lendUrgency, relendUrgency, sortByUrgency, takeTurnsInTopology } from './urgency.ts';

export type { Batch, Decision, Grant, RideCounts } from './batch.ts';

/** Milliseconds after a step in which the engine polls the sockets for an expected call instead of sleeping until the call comes. */
const WATCH_MS = 0.3;

/** Batches after which a queue counts as gone: its inferlet may take a moment from one call to the next, or from one invocation to the next. */
const SHARED_BATCHES = 4;

/**
 * Chooses batches for one model. While the device computes, calls queue; as soon as it is free and the policy agrees, the best batch
 * leaves. A plain state machine: the caller passes the time and executes the batches (Pie, SOSP '25, section 5.2).
 *
 * Every wait is bounded. Once a call has waited 2 × `maxPriority` × `agingMs`, no later call goes before it. A call of a workflow may also yield its
 * turn, for `mostYieldMs` at most. Each batch contains the most urgent ready call or one at least as urgent, because a call lends its urgency to the
 * calls that it waits for and to the call that computes its pages. There are three exceptions. Two steps that encode images follow each other only
 * when nothing else is ready, so that decode goes on between them. A batch of forwards takes the most urgent call of the variant whose turn it
 * is (`VariantTurns`). Calls that would miss their latency targets go before all others, within the bounds of `LatencyTurns`.
 */
export class Batcher {
  readonly limits: BatchLimits;
  readonly rides: RideCounts = { softJoins: 0, projections: 0 };
  readonly #bounds: NonNullable<BatcherOptions['bounds']>;
  #arrivals = 0;
  #instants = new Rotation<BatchCall>();
  #idles = new Rotation<BatchCall>();
  /** True when an idle call goes before the next instant one. */
  #idleNext = false;
  #projections: BatchCall[] = [];
  #encodings: BatchCall[] = [];
  /** True when the last batch encoded images. */
  #lastWasEncoding = false;
  #forwards: BatchCall[] = [];
  #turns = new VariantTurns();
  readonly #latency: LatencyTurns;
  #deviceBatch: Batch | undefined;
  /** Tenants whose calls are on the device, or joined the batch there. */
  #computing = new Set<string>();
  /** Projections of the forward batch under construction. */
  #riders: BatchRoom | undefined;
  readonly #departure: Departure;
  /** Time since which `next` has found the device free and calls ready; undefined otherwise. */
  #waitingSinceMs: number | undefined;
  /** Time at which the step on the device began. */
  #startedMs = 0;
  #queues = new Set<BatchQueue>();
  /** Queues whose priority changed since the last batch. */
  #repricedQueues = new Set<BatchQueue>();
  #deepQueues = new Set<BatchQueue>();
  /** The queue of the last call that went, and the batches since one with a call of another queue. */
  #lastQueue: BatchQueue | undefined;
  #batchesAlone = SHARED_BATCHES;

  constructor(options: BatcherOptions = {}) {
    this.#departure = options.departure ?? Departure.ofBatcher(options.grace);
    this.limits = { ...DEFAULT_LIMITS, ...options.limits, ...(this.#departure.sendsAlone ? { maxCalls: 1 } : {}) };
    this.#latency = new LatencyTurns(this.limits);
    this.#bounds = options.bounds ?? { batchInputs: Number.POSITIVE_INFINITY };
  }

  /** `limits`, with the inputs of the next batch bounded by the time that the batch would take. */
  get #nextLimits(): BatchLimits {
    const maxTokens = Math.max(1, this.#bounds.batchInputs);
    return maxTokens < this.limits.maxTokens ? { ...this.limits, maxTokens } : this.limits;
  }

  get busy(): boolean {
    return this.#deviceBatch !== undefined;
  }

  get queues(): number {
    return this.#queues.size;
  }

  /** Number of calls that are ready for the device. */
  get waiting(): number {
    return this.#forwards.length + this.#projections.length + this.#encodings.length;
  }

  get ready(): readonly BatchCall[] {
    return [...this.#forwards, ...this.#projections, ...this.#encodings];
  }

  /** Tenants whose calls are ready for the device or on it; a tenant may appear more than once. */
  *tenants(): Generator<string> {
    for (const { queue } of this.ready) yield queue.tenant;
    yield* this.#computing;
  }

  openQueue(scoreboard: Scoreboard, options: QueueOptions = {}): BatchQueue {
    const { maxPriority = MAX_PRIORITY, tenant = '', query = 0, targets } = options;
    const queue = new BatchQueue(scoreboard, maxPriority, tenant, query, targets);
    this.#queues.add(queue);
    return queue;
  }

  setPriority(queue: BatchQueue, priority: number): void {
    const clamped = Math.max(-queue.maxPriority, Math.min(queue.maxPriority, priority));
    if (clamped === queue.priority) return;
    queue.priority = clamped;
    queue.scoreboard.rank(this.#queues);
    if (this.#queues.has(queue)) this.#repricedQueues.add(queue);
  }

  /**
   * Marks the queue's later calls as calls of a workflow's node; `depth` is the length of the longest path from the node to the workflow's end.
   * Calls that the queue has already get no depth and never yield: a call that waits for one may have lent it no urgency, and would be delayed.
   */
  setDepth(queue: BatchQueue, depth: number): void {
    if (!this.#queues.has(queue)) return;
    queue.depth = depth;
    queue.scoreboard.rank(this.#queues);
    this.#deepQueues.add(queue);
  }

  /**
   * Drops the queue's calls that have not left, and returns them. Calls on the device go on and must be finished. A call that waited for a
   * dropped call then waits for the calls that the dropped one waited for.
   */
  closeQueue(queue: BatchQueue): BatchCall[] {
    this.#queues.delete(queue);
    this.#repricedQueues.delete(queue);
    this.#deepQueues.delete(queue);
    this.#departure.forget(queue);
    const dropped = queue.clear();
    for (const call of dropped) {
      if (call.state === 'ready') this.#withdraw(call);
      call.state = 'done';
      this.#unblock(call);
    }
    return dropped;
  }

  push(call: BatchCall, nowMs: number): void {
    const { queue } = call;
    call.arrival = ++this.#arrivals;
    call.turn = call.arrival;
    call.arrivedMs = nowMs;
    call.depth = queue.depth;
    this.#departure.came(call, nowMs);
    queue.scoreboard.add(call);
    if (queue.scoreboard.isRanked && call.blockers > 0) lendUrgency(call, this.limits.agingMs);
    queue.push(call);
    if (queue.front === call) this.#advance(queue);
  }

  /**
   * Takes a call that needs no step and can be executed now. An instant call may go at any time, an `idle` call only between two batches, since it
   * touches memory. With `mayGo`, only instant calls that `mayGo` accepts may go. The dependents of the taken call wait until it is finished.
   */
  takeInstant(mayGo?: (tenant: string, call: BatchCall) => boolean): BatchCall | undefined {
    const mayIdle = this.#deviceBatch === undefined && !mayGo;
    const idle = mayIdle && this.#idleNext ? this.#idles.shift() : undefined;
    const call = idle ?? this.#instants.shift(mayGo) ?? (mayIdle ? this.#idles.shift() : undefined);
    if (!call) return undefined;
    this.#idleNext = call.kind !== 'idle';
    this.#leave(call);
    return call;
  }

  /** The device's next work. A batch makes the device busy until `ended`. */
  next(nowMs: number): Decision {
    if (this.#deviceBatch) return IDLE;
    if (this.waiting === 0) {
      this.#waitingSinceMs = undefined;
      return IDLE;
    }
    this.#waitingSinceMs ??= nowMs;
    const [forwards, projections, encodings] = [this.#forwards, this.#projections, this.#encodings];
    const waitMs = this.#departure.waitMs({ forwards, projections, encodings, sinceMs: this.#waitingSinceMs }, nowMs);
    // A wait of less than a microsecond comes from rounding.
    if (waitMs > 0.001) return { kind: 'wait', ms: waitMs };
    const batch = this.#departure.sendsAlone ? this.#takeEarliest() : this.#takeUrgent(nowMs);
    this.#deviceBatch = batch;
    this.#computing = tenantsOf(batch);
    this.#startedMs = nowMs;
    this.#waitingSinceMs = undefined;
    return { kind: 'batch', batch };
  }

  /** True in the first `WATCH_MS` after a step while an answered queue is likely to send its next call soon. */
  expects(nowMs: number): boolean {
    return this.#departure.expectsWithin(WATCH_MS, nowMs);
  }

  /**
   * True when only the calls on the device can go, and the policy awaits no others. With `maxReady`, up to `maxReady` calls may be ready for the
   * device, and the policy may await calls.
   */
  isAlone(nowMs: number, maxReady?: number): boolean {
    if (this.waiting > (maxReady ?? 0) || !this.#instants.isEmpty || !this.#idles.isEmpty) return false;
    return maxReady !== undefined || !this.#departure.gathers(nowMs);
  }

  /** Takes a ready call into the batch on the device. */
  adopt(call: BatchCall): void {
    this.#withdraw(call);
    this.#leave(call);
    this.#computing.add(call.queue.tenant);
  }

  /** Call when a batch of several steps has begun its next one. Before that step the device was idle for `idleMs`. */
  stepped(nowMs: number, idleMs = 0): void {
    this.#latency.noteStep(nowMs - idleMs - this.#startedMs);
    this.#startedMs = nowMs;
  }

  /** Call when a run goes on with a step that is on the device already. The run counts as newly arrived. */
  goesOn(call: BatchCall, nowMs: number): void {
    // Lent urgency moves by the same time: a run keeps the priority of the calls that wait for it, but gets no urgency from their age.
    if (call.links?.lentMs !== undefined) call.links.lentMs += nowMs - call.arrivedMs;
    call.arrivedMs = nowMs;
    // The run has used the turn that it took from another call.
    call.turn = call.arrival;
    call.yieldMs = 0;
  }

  /** Call when the device is free again. Every call of the batch must have been finished, resumed or paused before. */
  ended(nowMs: number): void {
    this.#deviceBatch = undefined;
    this.#computing.clear();
    this.#latency.noteStep(nowMs - this.#startedMs);
    this.#departure.ended(nowMs, nowMs - this.#startedMs);
  }

  /** Completes a call and unblocks the calls that waited only for it. Calls of one batch may be finished in any order. */
  finish(call: BatchCall, nowMs: number): void {
    const { queue } = call;
    if (call.state === 'ready') this.#withdraw(call);
    call.state = 'done';
    queue.heldCalls.delete(call);
    if (queue.front === call) queue.shift();
    else queue.outstanding--;
    this.#unblock(call);
    if (queue.length > 0) this.#advance(queue);
    else if (queue.outstanding === 0 && call.kind !== 'instant' && this.#queues.has(queue))
      this.#departure.answered(queue, nowMs);
  }

  /**
   * Makes a call ready for its next step: a call with inputs left (a cut prefill, a run), or one that got what it waited for. A run counts as
   * newly arrived. A call behind an earlier one that was held waits for the held call instead.
   */
  resume(call: BatchCall, nowMs: number): void {
    if (call.state === 'done' || call.state === 'queued') return;
    if (call.continues) this.goesOn(call, nowMs);
    if (call.blockers > 0) this.#queueAgain(call);
    else this.#makeReady(call);
  }

  /** Makes a call wait for `resume`, for example a run that waits for its consumer or a call whose inferlet lost its pages. */
  pause(call: BatchCall): void {
    if (call.state === 'ready') this.#withdraw(call);
    if (call.state !== 'done') call.state = 'paused';
  }

  /**
   * Holds a call that was chosen and could not go. It keeps its place: later calls wait for it as before. It can go again after `resume` or,
   * when it follows another held call, after that one.
   */
  hold(call: BatchCall): void {
    if (call.queue.front !== call) call.queue.heldCalls.add(call);
    if (call.blockers > 0) this.#queueAgain(call);
    else call.state = 'paused';
    for (const later of call.dependents ?? []) this.#goBack(later);
    for (const { later } of call.links?.softDependents ?? []) this.#goBack(later);
  }

  /** Makes a ready call wait again. It had become ready because an earlier call was to go before it in the batch, and that call is held now. */
  #goBack(later: BatchCall): void {
    if (later.state !== 'ready' || later.blockers === 0) return;
    this.#withdraw(later);
    this.#queueAgain(later);
  }

  #queueAgain(call: BatchCall): void {
    call.state = 'queued';
    call.parked();
  }

  #advance(queue: BatchQueue): void {
    const call = queue.front;
    if (call?.state !== 'queued' || call.blockers > 0) return;
    if (call.kind !== 'barrier' || queue.outstanding === 0) this.#admit(call);
  }

  /** Makes a call whose turn has come ready, or pauses it until it has what it needs. A projection may join the batch under construction at once. */
  #admit(call: BatchCall): void {
    if (!call.acquire()) call.state = 'paused';
    else if (call.kind === 'project' && this.#riders?.take(call)) this.#ride(call);
    else this.#makeReady(call);
  }

  #makeReady(call: BatchCall): void {
    call.state = 'ready';
    const list = this.#readyList(call);
    if (list instanceof Rotation) list.push(call.queue.tenant, call);
    else list.push(call);
  }

  #readyList(call: BatchCall): BatchCall[] | Rotation<BatchCall> {
    switch (call.kind) {
      case 'instant':
      case 'barrier':
        return this.#instants;
      case 'idle':
        return this.#idles;
      case 'project':
        return this.#projections;
      case 'encode':
        return this.#encodings;
      case 'forward':
        return this.#forwards;
    }
  }

  #withdraw(call: BatchCall): void {
    const list = this.#readyList(call);
    if (list instanceof Rotation) {
      list.remove(call.queue.tenant, call);
      return;
    }
    const index = list.indexOf(call);
    if (index >= 0) list.splice(index, 1);
  }

  /** Removes a call from its queue, so that the queue's next call comes to the front. */
  #leave(call: BatchCall): void {
    const { queue } = call;
    call.state = 'running';
    // A call that was held has left already.
    if (queue.heldCalls.delete(call)) return;
    queue.shift();
    queue.outstanding++;
    this.#advance(queue);
  }

  #unblock(call: BatchCall): void {
    call.queue.scoreboard.remove(call, this.#unblocked);
  }

  #unblocked = (call: BatchCall): void => {
    if (call.queue.front === call) this.#advance(call.queue);
    else if (call.state === 'queued' && call.queue.heldCalls.has(call)) this.#admit(call);
  };

  #takeEarliest(): Batch {
    const call = earliest(this.#forwards, this.#projections, this.#encodings);
    if (!call) throw new Error('a batch was asked for without a ready call');
    this.#withdraw(call);
    if (call.kind === 'project' || call.kind === 'encode') {
      this.#leave(call);
      return call.kind === 'project' ? { ...NOTHING, projections: [call] } : { ...NOTHING, encodings: [call] };
    }
    const maxTokens = Math.min(this.#nextLimits.maxTokens, call.stepTokens);
    const tokens = call.tokens > maxTokens && call.chunkable() ? maxTokens : call.tokens;
    if (leavesWith(call, tokens)) this.#leave(call);
    else call.state = 'running';
    return { ...NOTHING, forwards: [{ call, tokens }] };
  }

  #takeUrgent(nowMs: number): Batch {
    const { agingMs } = this.limits;
    if (this.#repricedQueues.size > 0) {
      for (const queue of this.#repricedQueues) queue.each((call) => relendUrgency(call, agingMs));
      this.#repricedQueues.clear();
    }
    const lists = [this.#forwards, this.#projections, this.#encodings];
    for (const calls of lists) {
      if (this.#deepQueues.size > 0) takeTurnsInTopology(calls, agingMs, mostShortTokens(this.limits));
      sortByUrgency(calls, agingMs);
    }
    this.#latency.begin(lists, nowMs);
    const batch = this.#takeFirst();
    this.#latency.noteBatch();
    return batch;
  }

  #takeFirst(): Batch {
    const projectionsFirst = this.#isFirst(this.#projections[0], this.#forwards[0]);
    const other = projectionsFirst ? this.#projections[0] : this.#forwards[0];
    this.#lastWasEncoding = this.#isFirst(this.#encodings[0], other) && !(this.#lastWasEncoding && other);
    if (this.#lastWasEncoding) return this.#takeEncodings();
    return projectionsFirst ? this.#takeProjections() : this.#takeForwards();
  }

  #isFirst(call: BatchCall | undefined, other: BatchCall | undefined): boolean {
    if (!call || !other) return call !== undefined;
    return this.#latency.goesBefore(call, other) ?? isMoreUrgent(call, other, this.limits.agingMs);
  }

  #takeEncodings(): Batch {
    return { ...NOTHING, encodings: this.#takeInto(roomForEncodings(this.limits), this.#encodings) };
  }

  #takeProjections(): Batch {
    return { ...NOTHING, projections: this.#takeInto(roomForProjections(this.limits), this.#projections) };
  }

  #takeInto(room: BatchRoom, ready: BatchCall[]): readonly BatchCall[] {
    // When a call leaves, the next call of its queue comes to the front and may join `ready`.
    for (let next = ready[0]; next && room.take(next); next = ready[room.calls.length]) this.#leave(next);
    ready.splice(0, room.calls.length);
    return room.calls;
  }

  #takeForwards(): Batch {
    const { pressing } = this.#latency;
    const [mostUrgent] = this.#forwards;
    const variant = mostUrgent && pressing.has(mostUrgent) ? mostUrgent.variant : this.#turns.next(this.#forwards);
    const limits = this.#nextLimits;
    const { going: ready, waiting, awaitedBy } = postponeWaiters(this.#forwards, variant, limits);
    this.#latency.lend(awaitedBy);
    this.#forwards = ready;
    const forwards: Grant[] = [];
    const riders = roomForProjections(this.limits);
    this.#riders = riders;
    const take = (call: BatchCall, tokens: number): void => {
      if (call.links && call.links.follows > 0) this.rides.softJoins++;
      const after = call.links?.needs;
      forwards.push(after ? { call, tokens, after } : { call, tokens });
      if (!leavesWith(call, tokens)) {
        call.state = 'running';
        return;
      }
      admitFollowers(call, this.#unblocked);
      // The queue's next call comes to the front, and joins `ready` when nothing blocks it.
      this.#leave(call);
    };
    selectForwards(ready, variant, limits, take, pressing, this.#batchesAlone < SHARED_BATCHES);
    this.#riders = undefined;
    this.#noteQueues(forwards);
    for (const { call, tokens } of forwards) if (leavesWith(call, tokens)) dismissFollowers(call);
    this.#forwards = [...ready.filter((call) => call.state === 'ready'), ...waiting];
    return { forwards, projections: riders.calls, encodings: [], awaitedBy };
  }

  #noteQueues(forwards: readonly Grant[]): void {
    this.#batchesAlone++;
    for (const { call } of forwards) {
      if (this.#lastQueue !== undefined && call.queue !== this.#lastQueue) this.#batchesAlone = 0;
      this.#lastQueue = call.queue;
    }
  }

  /** Sends a projection with the batch that has all forwards for which it waits, so that embed, forward and next-distribution are one step. */
  #ride(call: BatchCall): void {
    this.rides.projections++;
    this.#leave(call);
  }
}

/** The call that leaves next, alone: the first to arrive, whatever its priority. A run counts as newly arrived with each token. */
function earliest(...ready: readonly (readonly BatchCall[])[]): BatchCall | undefined {
  let found: BatchCall | undefined;
  for (const calls of ready) for (const call of calls) if (!found || cameBefore(call, found)) found = call;
  return found;
}

function cameBefore(a: BatchCall, b: BatchCall): boolean {
  return a.arrivedMs < b.arrivedMs || (a.arrivedMs === b.arrivedMs && a.arrival < b.arrival);
}

export interface BatcherOptions {
  readonly limits?: Partial<BatchLimits>;
  /** For the default policy. */
  readonly grace?: GracePolicy;
  /** The policy for when a batch leaves; this batcher alone has it. */
  readonly departure?: Departure | undefined;
  /** `batchInputs` is the maximum inputs of the next batch, if this is below `BatchLimits.maxTokens`; at least 1. Unlimited by default. */
  readonly bounds?: { readonly batchInputs: number };
}

const MAX_PRIORITY = 10;

interface QueueOptions {
  /** Priorities of the queue are clamped to ±`maxPriority`; `MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Tenant whose inferlet owns the queue; an empty name by default. Tenants take turns with calls that need no step. */
  readonly tenant?: string;
  /** Latency targets of the queue's calls; without them the calls are ordinary. */
  readonly targets?: LatencyTargets | undefined;
  /** Rank of the queue's query (a root inferlet with its children) among its tenant's queries: the smaller, the earlier; 0 by default. */
  readonly query?: number;
}
