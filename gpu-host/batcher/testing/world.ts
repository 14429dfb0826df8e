import assert from 'node:assert/strict';
import { Random } from '#test/harness/random.ts';
import { DEFAULT_GRACE } from '../adaptive.ts';
import { type Batch, Batcher } from '../batcher.ts';
import { type BatchCall, type BatchQueue, Scoreboard } from '../call.ts';
import type { BatchLimits } from '../select.ts';
import { checkBatch, checkFull, TurnChecker } from './check-batch.ts';
import { type Operation, QUEUES_PER_SPACE, SPACES } from './operations.ts';
import { type BatchPolicy, departureOf } from './policies.ts';
import type { SimShape } from './sim-call.ts';
import { WorldCall } from './world-call.ts';

/**
 * Plays a badly behaved engine: ends calls in any order and fails some. Checks everything that the batcher gives it
 * against the rules.
 */
export class World {
  readonly batcher: Batcher;
  readonly policy: BatchPolicy;
  readonly limits: BatchLimits;
  readonly queues: BatchQueue[][] = [];
  readonly pushed: WorldCall[] = [];
  nowMs = 0;
  batches = 0;
  #batch: Batch | undefined;
  /** For each space, the calls that were not released when the space's last call came. */
  #open: WorldCall[][] = [];
  /** Runs that wait for their consumer, and calls that lack something that they need. */
  #held: WorldCall[] = [];
  #encodedBefore = false;
  #turns = new TurnChecker();
  /** Instant calls that have begun, and end at some later step. */
  #slow: WorldCall[] = [];
  /** End of the last batch. */
  #endMs = Number.NEGATIVE_INFINITY;
  /** Time since which the batcher has wanted to wait. */
  #waitingSinceMs: number | undefined;

  constructor(policy: BatchPolicy, limits: BatchLimits) {
    this.policy = policy;
    this.limits = limits;
    this.batcher = new Batcher({ limits, departure: departureOf(policy, limits.maxCalls) });
    for (let space = 0; space < SPACES; space++) {
      const scoreboard = new Scoreboard();
      const open = () => this.batcher.openQueue(scoreboard, { tenant: String(space) });
      this.queues.push(Array.from({ length: QUEUES_PER_SPACE }, open));
      this.#open.push([]);
    }
  }

  apply(operation: Operation): void {
    switch (operation.type) {
      case 'push':
        this.#push(operation.space, operation.queue, operation.shape);
        break;
      case 'step':
        this.step(operation.ms, new Random(operation.dice));
        break;
      case 'priority': {
        const queue = this.queues[operation.space]![operation.queue]!;
        this.batcher.setPriority(queue, operation.priority);
        assert.ok(Math.abs(queue.priority) <= queue.maxPriority, 'a priority beyond its bound');
        break;
      }
      case 'close':
        this.#close(operation.space, operation.queue, operation.maxPriority);
        break;
      case 'consume':
        if (this.#held.length > 0) this.#consume(operation.dice % this.#held.length);
        break;
    }
    this.#instants();
  }

  /** Finishes every call. */
  drain(): void {
    const dice = new Random(1);
    for (let stepsLeft = 20_000; stepsLeft > 0 && this.#unfinished > 0; stepsLeft--) {
      while (this.#held.length > 0) this.#consume(0);
      this.step(1, dice);
      this.#instants();
    }
    if (this.#batch) this.step(1, dice);
    const stuck = this.pushed.filter((call) => !call.finished && !call.dropped).map((call) => call.name);
    assert.deepEqual(stuck, [], 'calls that never left');
    assert.equal(this.batcher.waiting, 0);
    for (const queue of this.queues.flat()) {
      assert.equal(queue.length, 0);
      assert.equal(queue.outstanding, 0);
      assert.equal(queue.scoreboard.size, 0);
    }
  }

  /** Time passes; the batch on the device ends; the next one leaves if the batcher agrees. */
  step(ms: number, dice: Random): void {
    this.nowMs += ms;
    if (this.#slow.length > 0 && dice.below(2) === 0)
      this.#finish(this.#slow.splice(dice.below(this.#slow.length), 1)[0]!);
    if (this.#batch) this.#end(this.#batch, dice);
    this.#instants();
    const ready = this.#ready();
    this.#checkTenants(ready);
    let decision = this.batcher.next(this.nowMs);
    if (decision.kind === 'idle') {
      assert.deepEqual(ready, [], 'the device idles with work at hand');
      this.#waitingSinceMs = undefined;
      return;
    }
    if (decision.kind === 'wait') {
      this.#checkWait(decision.ms, ready);
      // Either other calls may come meanwhile, or the time passes, and then the wait is over.
      if (dice.below(2) === 0) return;
      this.nowMs += decision.ms;
      decision = this.batcher.next(this.nowMs);
      if (decision.kind !== 'batch') assert.fail('the wait is extended');
    }
    this.#waitingSinceMs = undefined;
    this.#start(decision.batch, ready);
  }

  #push(space: number, queueIndex: number, shape: SimShape): void {
    const queue = this.queues[space]![queueIndex]!;
    const open = this.#open[space]!.filter((call) => !call.released);
    const call = new WorldCall(queue, shape, `${space}.${queueIndex}#${this.pushed.length}`, open);
    open.push(call);
    this.#open[space] = open;
    this.pushed.push(call);
    if (call.late) this.#held.push(call);
    this.batcher.push(call, this.nowMs);
  }

  #close(space: number, queueIndex: number, maxPriority: number): void {
    const queue = this.queues[space]![queueIndex]!;
    const onDevice = new Set<BatchCall>(this.#batch?.forwards.map((grant) => grant.call));
    const expected = this.#open[space]!.filter(
      (call) => call.queue === queue && !call.hasLeft && !call.dropped && !onDevice.has(call),
    );
    const dropped = this.batcher.closeQueue(queue) as WorldCall[];
    assert.deepEqual(
      dropped.map((call) => call.name),
      expected.map((call) => call.name),
    );
    for (const call of dropped) call.dropped = true;
    this.#held = this.#held.filter((call) => !call.dropped);
    this.queues[space]![queueIndex] = this.batcher.openQueue(queue.scoreboard, { maxPriority, tenant: queue.tenant });
  }

  #consume(index: number): void {
    const [call] = this.#held.splice(index, 1);
    if (!call) return;
    call.held = false;
    call.late = false;
    this.batcher.resume(call, this.nowMs);
  }

  #instants(): void {
    for (let call = this.batcher.takeInstant(); call; call = this.batcher.takeInstant()) {
      const done = call as WorldCall;
      assert.ok(!done.started && !done.dropped);
      if (done.kind === 'idle') assert.equal(this.#batch, undefined, 'an idle call beside a batch');
      for (const ahead of done.ahead) {
        const isPast = done.kind === 'barrier' ? ahead.finished : ahead.hasLeft;
        assert.ok(isPast || ahead.dropped, `${done.name} went before ${ahead.name}`);
      }
      for (const { earlier } of done.conflicts)
        assert.ok(earlier.finished || earlier.dropped, `${done.name} did not wait for ${earlier.name}`);
      done.started = true;
      done.hasLeft = true;
      // About every fourth instant call goes on for some steps, as a save to disk does.
      if (done.kind === 'instant' && done.arrival % 4 === 0) this.#slow.push(done);
      else this.#finish(done);
    }
  }

  #start(batch: Batch, ready: readonly WorldCall[]): void {
    assert.ok(!this.#batch, 'two batches at once');
    checkBatch(batch, this.limits);
    if (this.policy.kind === 'eager') checkAlone(batch, ready);
    else {
      checkFull(batch, ready, this.limits);
      this.#turns.check(batch, ready);
    }
    const isEncoding = batch.encodings.length > 0;
    const starves = isEncoding && this.#encodedBefore && ready.some((call) => call.kind !== 'encode');
    if (this.policy.kind !== 'eager') assert.ok(!starves, 'two encodings in a row before others');
    this.#encodedBefore = isEncoding;
    this.#batch = batch;
    this.batches++;
    for (const { call, tokens } of batch.forwards) {
      (call as WorldCall).started = true;
      (call as WorldCall).hasLeft = !call.continues && tokens === call.tokens;
    }
    const others = [...batch.projections, ...batch.encodings] as WorldCall[];
    for (const call of others) {
      call.started = true;
      call.hasLeft = true;
    }
    const onDevice = [...batch.forwards.map(({ call }) => call as WorldCall), ...others];
    this.#checkTenants([...ready, ...onDevice]);
  }

  /** Tenants whose calls cannot run must not count in their model's share of the device's time. */
  #checkTenants(calls: readonly WorldCall[]): void {
    const tenants = new Set(calls.map(({ queue }) => queue.tenant));
    assert.deepEqual(new Set(this.batcher.tenants()), tenants, 'the tenants that can use the device');
  }

  /**
   * Some forwards fail while they are prepared, before any call is done. Forwards that need their pages fail with them.
   * The rest end in any order.
   */
  #end(batch: Batch, dice: Random): void {
    const failed = new Set<BatchCall>();
    for (const { call, after } of batch.forwards) {
      if (dice.below(12) > 0 && !after?.some((earlier) => failed.has(earlier))) continue;
      failed.add(call);
      this.#finish(call as WorldCall);
      this.#instants();
    }
    const rest = [...batch.forwards.filter(({ call }) => !failed.has(call)), ...batch.projections, ...batch.encodings];
    for (const part of dice.shuffled(rest)) {
      if ('call' in part) this.#accept(part.call as WorldCall, part.tokens, dice);
      else this.#finish(part as WorldCall);
      this.#instants();
    }
    this.#batch = undefined;
    this.batcher.ended(this.nowMs);
    this.#endMs = this.nowMs;
  }

  #accept(call: WorldCall, tokens: number, dice: Random): void {
    call.left -= tokens;
    if (call.left === 0) this.#finish(call);
    else if (call.continues && dice.below(4) === 0) {
      this.batcher.pause(call);
      call.held = true;
      this.#held.push(call);
    } else this.batcher.resume(call, this.nowMs);
  }

  #finish(call: WorldCall): void {
    assert.ok(!call.finished);
    call.finished = true;
    call.hasLeft = true;
    this.batcher.finish(call, this.nowMs);
  }

  #ready(): WorldCall[] {
    return this.#open.flat().filter((call) => call.ready);
  }

  get #unfinished(): number {
    return this.pushed.filter((call) => !call.finished && !call.dropped).length;
  }

  /** Checks that the wait ends when the policy says so. */
  #checkWait(ms: number, ready: readonly WorldCall[]): void {
    const { policy, nowMs } = this;
    this.#waitingSinceMs ??= nowMs;
    assert.ok(ms > 0);
    const untilMs = nowMs + ms;
    const oldestMs = Math.min(...ready.map((call) => call.arrivedMs));
    const slackMs = 1e-6;
    switch (policy.kind) {
      case 'adaptive':
        assert.ok(untilMs - this.#endMs <= DEFAULT_GRACE.maxMs + slackMs, 'longer than the grace');
        break;
      case 'eager':
        assert.fail('eager waits');
        break;
      case 'k-only':
        assert.ok(ready.length < policy.calls, 'enough calls are there');
        assert.ok(untilMs - oldestMs <= policy.maxWaitMs + slackMs);
        break;
      case 't-only':
        assert.ok(untilMs - this.#waitingSinceMs <= policy.intervalMs + slackMs);
        assert.ok(Math.abs(untilMs % policy.intervalMs) < slackMs, 'not on the clock');
        break;
      case 'rate':
        assert.ok(untilMs - oldestMs <= policy.maxWaitMs + slackMs);
        break;
    }
  }
}

/** Checks that the batch is one call, the first to arrive of those that could go. */
function checkAlone(batch: Batch, ready: readonly WorldCall[]): void {
  const [call, ...more] = [...batch.forwards.map((grant) => grant.call), ...batch.projections, ...batch.encodings];
  assert.deepEqual(more, []);
  for (const other of ready) {
    const later =
      other.arrivedMs > call!.arrivedMs || (other.arrivedMs === call!.arrivedMs && other.arrival >= call!.arrival);
    assert.ok(later, `${other.name} came first`);
  }
}
