import type { BatchCall } from './call.ts';
import { DEFAULT_GRACE, type GracePolicy, graceMs, learnResponse } from './grace.ts';
import { BatchQueue } from './queue.ts';
import type { Scoreboard } from './scoreboard.ts';
import { type BatchLimits, DEFAULT_LIMITS, type Grant, selectForwards, sortByUrgency, urgency } from './select.ts';

export interface BatcherOptions {
  readonly limits?: Partial<BatchLimits>;
  readonly grace?: GracePolicy;
}

/** What the device does next: forwards, then projections; either may be empty, not both. */
export interface Batch {
  readonly forwards: readonly Grant[];
  /** Projections of states that are there, or that the forwards of this batch make. */
  readonly projections: readonly BatchCall[];
}

export type Decision =
  | { readonly kind: 'batch'; readonly batch: Batch }
  /** Nothing can go, or the device is computing. */
  | { readonly kind: 'idle' }
  /** Calls are ready, but others are expected within this time: ask again when calls came or it has passed. */
  | { readonly kind: 'wait'; readonly ms: number };

const IDLE: Decision = { kind: 'idle' };
const MAX_PRIORITY = 10;
/** Longest time that the caller watches for an expected call instead of sleeping until it comes, milliseconds. */
const WATCH_MS = 0.3;

/**
 * Chooses batches for one model. Work-conserving: while the device computes, calls queue; as soon as it is free the best batch leaves
 * (after at most the grace for queues that were just answered). A plain state machine: the caller tells the time and executes what it
 * is handed (Pie, SOSP '25, section 5.2).
 */
export class Batcher {
  readonly limits: BatchLimits;
  #grace: GracePolicy;
  #arrivals = 0;
  #instants: BatchCall[] = [];
  #idles: BatchCall[] = [];
  #projections: BatchCall[] = [];
  #forwards: BatchCall[] = [];
  #busy: Batch | undefined;
  /** Queues that were answered and have nothing pending. */
  #answered = new Set<BatchQueue>();
  #lastEndMs = Number.NEGATIVE_INFINITY;
  #lastStepMs = 0;
  #startedMs = 0;
  #queues = new Set<BatchQueue>();

  constructor(options: BatcherOptions = {}) {
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#grace = options.grace ?? DEFAULT_GRACE;
  }

  get busy(): boolean {
    return this.#busy !== undefined;
  }

  get queues(): number {
    return this.#queues.size;
  }

  /** Calls that wait for the device and could go now. */
  get waiting(): number {
    return this.#forwards.length + this.#projections.length;
  }

  openQueue(scoreboard: Scoreboard): BatchQueue {
    const queue = new BatchQueue(scoreboard);
    this.#queues.add(queue);
    return queue;
  }

  setPriority(queue: BatchQueue, priority: number): void {
    queue.priority = Math.max(-MAX_PRIORITY, Math.min(MAX_PRIORITY, priority));
  }

  /** Drops the queue's calls that have not left, and hands them out. Calls on the device go on and must be finished. */
  closeQueue(queue: BatchQueue): BatchCall[] {
    this.#queues.delete(queue);
    this.#answered.delete(queue);
    const dropped = queue.clear().filter((call) => call.state !== 'running');
    for (const call of dropped) {
      if (call.state === 'ready') this.#withdraw(call);
      call.state = 'done';
      this.#unblock(call);
    }
    return dropped;
  }

  /** Takes a new call of `queue`. */
  push(call: BatchCall, nowMs: number): void {
    const { queue } = call;
    call.arrival = ++this.#arrivals;
    call.arrivedMs = nowMs;
    if (queue.answeredMs !== undefined) {
      queue.responseMs = learnResponse(queue.responseMs, Math.min(nowMs - queue.answeredMs, this.#grace.maxMs * 4));
      queue.answeredMs = undefined;
      this.#answered.delete(queue);
    }
    queue.scoreboard.add(call);
    queue.push(call);
    if (queue.front === call) this.#advance(queue);
  }

  /** A call that needs no step and can be done now; it must be finished at once. */
  takeInstant(): BatchCall | undefined {
    const call = this.#instants.shift() ?? (this.#busy ? undefined : this.#idles.shift());
    if (call) this.#leave(call);
    return call;
  }

  /** What the device should do now. A batch that is handed out makes it busy until `ended`. */
  next(nowMs: number): Decision {
    if (this.#busy || this.waiting === 0) return IDLE;
    const waitMs = this.#waitMs(nowMs);
    // A microsecond is below what the clock and its rounding can tell.
    if (waitMs > 0.001) return { kind: 'wait', ms: waitMs };
    sortByUrgency(this.#forwards, this.limits.agingMs);
    sortByUrgency(this.#projections, this.limits.agingMs);
    const batch = this.#projectionsFirst() ? this.#takeProjections() : this.#takeForwards();
    this.#busy = batch;
    this.#startedMs = nowMs;
    return { kind: 'batch', batch };
  }

  /** Whether a queue that was just answered will probably be back within `WATCH_MS` of that: worth watching the sockets for without sleeping. */
  expects(nowMs: number): boolean {
    return this.#answered.size > 0 && nowMs - this.#lastEndMs < WATCH_MS;
  }

  /** The device is free again. Every call of the batch must have been finished, resumed or paused before. */
  ended(nowMs: number): void {
    this.#busy = undefined;
    this.#lastStepMs = nowMs - this.#startedMs;
    this.#lastEndMs = nowMs;
  }

  /** The call is complete: what waited for it may go. */
  finish(call: BatchCall, nowMs: number): void {
    const { queue } = call;
    if (call.state === 'ready') this.#withdraw(call);
    call.state = 'done';
    if (queue.front === call) queue.shift();
    else queue.outstanding--;
    this.#unblock(call);
    if (queue.length > 0) this.#advance(queue);
    else if (queue.outstanding === 0 && call.kind !== 'instant' && this.#queues.has(queue)) {
      queue.answeredMs = nowMs;
      if (this.#mayComeBackSoon(queue)) this.#answered.add(queue);
    }
  }

  /** A call with inputs left (a cut prefill, a run) is ready for its next step. A run counts as newly come. */
  resume(call: BatchCall, nowMs: number): void {
    if (call.state === 'done') return;
    if (call.continues) call.arrivedMs = nowMs;
    this.#makeReady(call);
  }

  /** A run waits for its consumer. */
  pause(call: BatchCall): void {
    if (call.state === 'ready') this.#withdraw(call);
    if (call.state !== 'done') call.state = 'paused';
  }

  #advance(queue: BatchQueue): void {
    const call = queue.front;
    if (call?.state !== 'queued' || call.blockers > 0) return;
    if (call.kind === 'barrier' && queue.outstanding > 0) return;
    this.#makeReady(call);
  }

  #makeReady(call: BatchCall): void {
    call.state = 'ready';
    this.#readyList(call).push(call);
  }

  #readyList(call: BatchCall): BatchCall[] {
    switch (call.kind) {
      case 'instant':
      case 'barrier':
        return this.#instants;
      case 'idle':
        return this.#idles;
      case 'project':
        return this.#projections;
      case 'forward':
        return this.#forwards;
    }
  }

  #withdraw(call: BatchCall): void {
    const list = this.#readyList(call);
    const index = list.indexOf(call);
    if (index >= 0) list.splice(index, 1);
  }

  /** The call goes for good: the next one of its queue comes to the front. */
  #leave(call: BatchCall): void {
    const { queue } = call;
    call.state = 'running';
    queue.shift();
    queue.outstanding++;
    this.#advance(queue);
  }

  #unblock(call: BatchCall): void {
    call.queue.scoreboard.remove(call, (freed) => {
      if (freed.queue.front === freed) this.#advance(freed.queue);
    });
  }

  /** The type whose most urgent call has waited longest goes next. */
  #projectionsFirst(): boolean {
    const projection = this.#projections[0];
    const forward = this.#forwards[0];
    if (!projection || !forward) return projection !== undefined;
    const difference = urgency(projection, this.limits.agingMs) - urgency(forward, this.limits.agingMs);
    return difference < 0 || (difference === 0 && projection.arrival < forward.arrival);
  }

  #takeProjections(): Batch {
    const projections = this.#projections.splice(0, this.limits.maxCalls);
    for (const call of projections) this.#leave(call);
    return { forwards: [], projections };
  }

  #takeForwards(): Batch {
    const ready = this.#forwards;
    const forwards: Grant[] = [];
    const projections: BatchCall[] = [];
    selectForwards(ready, this.limits, (grant) => {
      forwards.push(grant);
      const { call } = grant;
      // The next call of the queue comes to the front, and into `ready` when it is free to go.
      if (!call.continues && grant.tokens === call.tokens) this.#leave(call);
      else call.state = 'running';
    });
    this.#forwards = ready.filter((call) => call.state === 'ready');
    for (const { call } of forwards)
      if (call.dependents && call.queue.front !== call) this.#takeRiders(call, projections);
    return { forwards, projections };
  }

  /** Projections that wait for nothing but a forward of this batch go with it: embed, forward and next-distribution are one step. */
  #takeRiders(forward: BatchCall, projections: BatchCall[]): void {
    for (const call of forward.dependents ?? []) {
      if (call.kind !== 'project' || call.blockers !== 1 || call.queue.front !== call || call.state !== 'queued')
        continue;
      projections.push(call);
      this.#leave(call);
    }
  }

  #mayComeBackSoon(queue: BatchQueue): boolean {
    return queue.responseMs === undefined || queue.responseMs <= this.#grace.maxMs;
  }

  #waitMs(nowMs: number): number {
    let awaited = this.#answered.size;
    if (awaited === 0) return 0;
    const sinceMs = nowMs - this.#lastEndMs;
    if (sinceMs >= this.#grace.maxMs) {
      // Whoever has not come by now is not waited for again until it has shown that it is quick.
      for (const queue of this.#answered) queue.responseMs = learnResponse(queue.responseMs, this.#grace.maxMs * 2);
      this.#answered.clear();
      awaited = 0;
    }
    const ready = this.#forwards.length + this.#projections.length;
    return Math.max(0, graceMs(this.#grace, ready, awaited, this.#lastStepMs) - sinceMs);
  }
}
