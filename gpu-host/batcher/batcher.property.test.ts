import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Batch, Batcher } from './batcher.ts';
import type { BatchQueue } from './queue.ts';
import { Scoreboard } from './scoreboard.ts';
import { SimCall, type SimShape } from './testing/sim-call.ts';

const LIMITS = { maxCalls: 6, maxTokens: 40, agingMs: 20 };
const NARROW = { maxCalls: 2, maxTokens: 3, agingMs: 20 };
const SPACES = 3;
const QUEUES_PER_SPACE = 3;

const keys = fc.uniqueArray(fc.nat({ max: 7 }), { maxLength: 3 });
const forward = fc.record({
  kind: fc.constant('forward' as const),
  reads: keys,
  writes: keys,
  tokens: fc.oneof(
    { weight: 4, arbitrary: fc.constant(1) },
    { weight: 1, arbitrary: fc.integer({ min: 2, max: 120 }) },
  ),
  chunkable: fc.boolean(),
  run: fc.boolean(),
});
const shape: fc.Arbitrary<SimShape> = fc.oneof(
  { weight: 5, arbitrary: forward.map((made) => ({ ...made, run: made.run && made.tokens > 1 && made.tokens < 20 })) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('project' as const),
      reads: fc.uniqueArray(fc.nat({ max: 7 }), { minLength: 1, maxLength: 2 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constantFrom('instant' as const, 'idle' as const), reads: keys, writes: keys }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'barrier' as const }) },
);
const event = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      type: fc.constant('push' as const),
      space: fc.nat({ max: SPACES - 1 }),
      queue: fc.nat({ max: QUEUES_PER_SPACE - 1 }),
      shape,
    }),
  },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('step' as const), ms: fc.nat({ max: 10 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('priority' as const),
      space: fc.nat({ max: SPACES - 1 }),
      queue: fc.nat({ max: QUEUES_PER_SPACE - 1 }),
      priority: fc.integer({ min: -20, max: 20 }),
    }),
  },
);
type Event = typeof event extends fc.Arbitrary<infer T> ? T : never;

/** Plays the part of the engine and checks every batch that it is handed. */
class World {
  readonly batcher: Batcher;
  readonly limits: typeof LIMITS;
  readonly queues: BatchQueue[][] = [];
  readonly pushed: SimCall[] = [];
  readonly finished = new Set<SimCall>();
  readonly started = new Set<SimCall>();
  nowMs = 0;
  #batch: Batch | undefined;

  constructor(limits: typeof LIMITS) {
    this.limits = limits;
    this.batcher = new Batcher({ limits });
    for (let space = 0; space < SPACES; space++) {
      const scoreboard = new Scoreboard();
      this.queues.push(Array.from({ length: QUEUES_PER_SPACE }, () => this.batcher.openQueue(scoreboard)));
    }
  }

  apply(event: Event): void {
    if (event.type === 'push') {
      const call = new SimCall(
        this.queues[event.space]![event.queue]!,
        event.shape,
        `${event.space}.${event.queue}#${this.pushed.length}`,
      );
      this.pushed.push(call);
      this.batcher.push(call, this.nowMs);
      this.instants();
    } else if (event.type === 'priority') {
      this.batcher.setPriority(this.queues[event.space]![event.queue]!, event.priority);
    } else {
      this.nowMs += event.ms;
      this.device();
    }
  }

  /** Ends the batch on the device, if any, and starts the next, if any. */
  device(): void {
    if (this.#batch) this.#end(this.#batch);
    this.#batch = undefined;
    this.instants();
    let decision = this.batcher.next(this.nowMs);
    if (decision.kind === 'wait') {
      assert.ok(decision.ms > 0 && decision.ms <= 1, 'the grace is bounded');
      this.nowMs += decision.ms;
      decision = this.batcher.next(this.nowMs);
      assert.notEqual(decision.kind, 'wait', 'the grace is not extended');
    }
    if (decision.kind !== 'batch') return;
    this.#check(decision.batch);
    this.#batch = decision.batch;
  }

  instants(): void {
    for (let call = this.batcher.takeInstant(); call; call = this.batcher.takeInstant()) {
      const sim = call as SimCall;
      this.#startable(sim, []);
      if (sim.kind === 'barrier') {
        for (const earlier of this.#earlier(sim, (other) => other.queue === sim.queue))
          assert.ok(this.finished.has(earlier));
      }
      if (sim.kind === 'idle') assert.equal(this.#batch, undefined, 'an idle call never runs beside a batch');
      this.started.add(sim);
      this.finished.add(sim);
      this.batcher.finish(sim, this.nowMs);
    }
  }

  get idle(): boolean {
    return this.#batch === undefined && this.finished.size === this.pushed.length;
  }

  #check(batch: Batch): void {
    const forwards = batch.forwards.map((grant) => grant.call as SimCall);
    const projections = batch.projections as SimCall[];
    assert.ok(forwards.length + projections.length > 0, 'no empty batch');
    assert.ok(forwards.length <= this.limits.maxCalls);
    assert.equal(new Set([...forwards, ...projections]).size, forwards.length + projections.length);
    const tokens = batch.forwards.reduce((sum, grant) => sum + grant.tokens, 0);
    if (tokens > this.limits.maxTokens) {
      assert.equal(forwards.length, 1, 'only a call that cannot be cut goes past the limit, alone');
      assert.equal(forwards[0]!.shape.chunkable, false);
    }
    for (const [i, grant] of batch.forwards.entries()) {
      const call = forwards[i]!;
      assert.ok(grant.tokens >= 1 && grant.tokens <= call.tokens);
      if (!call.shape.chunkable && !call.shape.run) assert.equal(grant.tokens, call.tokens);
      for (const other of forwards.slice(i + 1)) {
        assert.ok(
          call.queue.scoreboard !== other.queue.scoreboard || !call.conflictsWith(other),
          `${call.name} and ${other.name} conflict`,
        );
      }
    }
    // In the order in which the batch took them: what went before, in the same batch, counts as gone.
    for (const call of forwards) this.#startable(call, [...forwards, ...projections]);
    for (const call of projections) this.#startable(call, [...forwards, ...projections]);
    for (const call of [...forwards, ...projections]) this.started.add(call);
  }

  /** Earlier calls of its queue have gone, and earlier calls that it conflicts with are done (or, before a projection, go in this batch). */
  #startable(call: SimCall, beside: readonly SimCall[]): void {
    if (this.started.has(call)) return;
    for (const earlier of this.#earlier(call, (other) => other.queue === call.queue)) {
      assert.ok(this.started.has(earlier) || beside.includes(earlier), `${call.name} went before ${earlier.name}`);
      if (!this.started.has(earlier)) assert.ok(!earlier.shape.run, 'a run holds its queue');
    }
    for (const earlier of this.#earlier(call, (other) => other.conflictsWith(call))) {
      const rides = call.kind === 'project' && earlier.kind === 'forward' && beside.includes(earlier);
      assert.ok(this.finished.has(earlier) || rides, `${call.name} did not wait for ${earlier.name}`);
    }
  }

  #earlier(call: SimCall, which: (other: SimCall) => boolean): SimCall[] {
    return this.pushed.filter(
      (other) => other.arrival < call.arrival && other.queue.scoreboard === call.queue.scoreboard && which(other),
    );
  }

  #end(batch: Batch): void {
    for (const grant of batch.forwards) {
      const call = grant.call as SimCall;
      call.left -= grant.tokens;
      if (call.left > 0) this.batcher.resume(call, this.nowMs);
      else this.#finish(call);
    }
    for (const call of batch.projections) this.#finish(call as SimCall);
    this.batcher.ended(this.nowMs);
  }

  #finish(call: SimCall): void {
    this.finished.add(call);
    this.batcher.finish(call, this.nowMs);
  }
}

test('order in queues, no conflicts in a batch, limits, and every call leaves', () => {
  fc.assert(
    fc.property(
      fc.array(event, { minLength: 20, maxLength: 150 }),
      fc.constantFrom(LIMITS, NARROW),
      (events, limits) => {
        const world = new World(limits);
        for (const one of events) world.apply(one);
        let left = 20_000;
        while (!world.idle && left-- > 0) {
          world.nowMs += 1;
          world.device();
        }
        const stuck = world.pushed.filter((call) => !world.finished.has(call)).map((call) => call.name);
        assert.deepEqual(stuck, []);
        for (const queue of world.queues.flat()) {
          assert.equal(queue.length, 0);
          assert.equal(queue.outstanding, 0);
          assert.equal(queue.scoreboard.size, 0);
        }
      },
    ),
    { seed: 20261121, numRuns: 400 },
  );
});

test('while others keep coming, no call waits longer than its priority is worth', () => {
  const offered = fc.array(
    fc.record({
      priority: fc.integer({ min: -10, max: 10 }),
      tokens: fc.integer({ min: 1, max: 60 }),
      chunkable: fc.boolean(),
    }),
    {
      minLength: 1,
      maxLength: 12,
    },
  );
  fc.assert(
    fc.property(offered, (queues) => {
      const batcher = new Batcher({ limits: LIMITS });
      const pushes = queues.map((shape) => {
        const queue = batcher.openQueue(new Scoreboard());
        batcher.setPriority(queue, shape.priority);
        return { queue, shape };
      });
      let nowMs = 0;
      const push = ({ queue, shape }: (typeof pushes)[number]): void =>
        batcher.push(new SimCall(queue, { kind: 'forward', tokens: shape.tokens, chunkable: shape.chunkable }), nowMs);
      for (const one of pushes) push(one);
      for (let step = 0; step < 300; step++) {
        const decision = batcher.next(nowMs);
        nowMs += 1;
        if (decision.kind !== 'batch') continue;
        for (const grant of decision.batch.forwards) {
          const call = grant.call as SimCall;
          // At most 20 levels apart, 20 ms each, and then the work of everybody who was ahead.
          assert.ok(nowMs - call.arrivedMs <= 20 * LIMITS.agingMs + 12 * 3 * 12, `waited ${nowMs - call.arrivedMs} ms`);
          call.left -= grant.tokens;
          if (call.left > 0) batcher.resume(call, nowMs);
          else {
            batcher.finish(call, nowMs);
            push(pushes.find((one) => one.queue === call.queue)!);
          }
        }
        batcher.ended(nowMs);
      }
    }),
    { seed: 5, numRuns: 150 },
  );
});
