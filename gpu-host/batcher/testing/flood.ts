import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type Batch, Batcher } from '../batcher.ts';
import { type BatchCall, type BatchQueue, type LatencyTargets, Scoreboard } from '../call.ts';
import type { BatchLimits } from '../select.ts';
import { MAX_PASSED_OVER } from '../targets.ts';
import { mostYieldMs, urgency } from '../urgency.ts';
import { ADAPTERS, shape, variant } from './operations.ts';
import { SimCall, type SimShape } from './sim-call.ts';

const MAX_PRIORITY = 10;
const VICTIM_QUEUES = 4;

type FloodOperation =
  | { readonly type: 'push'; readonly space: number; readonly queue: number; readonly shape: SimShape }
  | { readonly type: 'step'; readonly ms: number };

interface Client {
  readonly targets?: LatencyTargets | undefined;
  /** Depths that the client claims for its calls, in turn; empty for a client without workflows. */
  readonly depths?: readonly number[];
}

interface FloodSetup {
  /** For each flooding client, the call that it issues again and again at the highest priority. */
  readonly flood: readonly (SimShape & Client)[];
  /** Priorities of the queues of two other inferlets, whose calls must not starve. */
  readonly priorities: readonly (readonly number[])[];
  /** For each of these inferlets, true when its calls carry the depths of a workflow. */
  readonly deep: readonly boolean[];
  readonly limits: BatchLimits;
}

export const floodSetups: fc.Arbitrary<FloodSetup> = fc.record({
  flood: fc.array(
    fc.record({
      kind: fc.constant('forward' as const),
      tokens: fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 60 })),
      chunkable: fc.boolean(),
      run: fc.boolean(),
      variant,
      targets: fc.option(fc.constantFrom({ firstTokenMs: 0, perTokenMs: 0 }, { firstTokenMs: 20, perTokenMs: 4 }), {
        nil: undefined,
      }),
      depths: fc.oneof(
        fc.constant([]),
        fc.array(fc.constantFrom(0, 1, 50, 0xffff_ffff), { minLength: 1, maxLength: 4 }),
      ),
    }),
    { minLength: 3, maxLength: 8 },
  ),
  priorities: fc.array(
    fc.array(fc.integer({ min: -MAX_PRIORITY, max: MAX_PRIORITY }), {
      minLength: VICTIM_QUEUES,
      maxLength: VICTIM_QUEUES,
    }),
    { minLength: 2, maxLength: 2 },
  ),
  deep: fc.array(fc.boolean(), { minLength: 2, maxLength: 2 }),
  limits: fc.constantFrom(
    { maxCalls: 2, maxTokens: 40, maxScores: 9, agingMs: 4 },
    { maxCalls: 3, maxTokens: 5, maxScores: 9, agingMs: 2 },
  ),
});

export function floodOperations(length: number): fc.Arbitrary<FloodOperation[]> {
  const operation: fc.Arbitrary<FloodOperation> = fc.oneof(
    {
      weight: 1,
      arbitrary: fc.record({
        type: fc.constant('push' as const),
        space: fc.nat({ max: 1 }),
        queue: fc.nat({ max: VICTIM_QUEUES - 1 }),
        // No runs: each step of a run counts as a new call, so calls behind one have no bound of their own.
        shape: shape.map((made) => ({ ...made, run: false, late: false })),
      }),
    },
    { weight: 4, arbitrary: fc.record({ type: fc.constant('step' as const), ms: fc.integer({ min: 1, max: 3 }) }) },
  );
  return fc.array(operation, { maxLength: length, size: 'max' });
}

/** Among so many forward batches, every variant with ready calls has one: each adapter has one, and the model has one before each of these. */
const TURNS = 2 * ADAPTERS.length;

/** Maximum number of batches until the call has left, when each batch that serves it takes `quarter` of its inputs (steps 2 and 3 of the bound). */
function batchesOf(call: BatchCall, quarter: number): number {
  if (call.kind === 'encode') return 2;
  if (call.kind === 'project') return 1;
  return TURNS * (call.chunkable() ? Math.ceil(call.tokens / quarter) : 1);
}

/** A call that must not starve. */
interface Victim {
  readonly call: SimCall;
  /** Urgency that the call keeps however much it yields. */
  readonly urgencyMs: number;
  /** Time from which no later call goes before the victim. */
  readonly settledMs: number;
  /** Number of the batch by which the call must have left, once known. */
  deadline: number | undefined;
}

/**
 * Calls of low and high priority amid clients that never pause.
 *
 * The number of batches within which a call leaves is bounded. The bound follows in four steps:
 *
 * 1. Let a call come at time t with priority p. No call that comes later than t + (`maxPriority` - p) × `agingMs` goes before it. If the call has a
 *    depth, it may also yield, so `mostYieldMs` is added to this time, whatever depths other calls claim.
 * 2. Count the calls that are at least as urgent at that time. The call itself is one of them, and so are its blockers, which have its urgency. Each
 *    batch takes at least one of these calls: a quarter of the batch's inputs from it, or all inputs that it has. So the call leaves within as many
 *    batches as these calls have quarters left.
 * 3. An encoding counts twice, because a batch of other calls may come between two encodings. A forward counts `TURNS` times, because it may have to
 *    wait for the turn of its variant.
 * 4. If clients have latency targets, only one batch in `MAX_PASSED_OVER + 1` is sure to serve these calls, so the number is multiplied by
 *    `MAX_PASSED_OVER + 1`.
 */
export class Flood {
  readonly #batcher: Batcher;
  readonly #limits: BatchLimits;
  readonly #flood: { readonly queue: BatchQueue; readonly shape: SimShape & Client; sent: number }[];
  /** Factor of the fourth step: among so many batches, one serves the most urgent ordinary call. */
  readonly #passes: number;
  readonly #victimQueues: BatchQueue[][];
  #victims: Victim[] = [];
  /** Unfinished device calls. */
  #open = new Set<SimCall>();
  #nowMs = 0;
  #batches = 0;
  /** Number of calls whose bound was computed. */
  settled = 0;

  constructor(setup: FloodSetup) {
    this.#limits = setup.limits;
    this.#batcher = new Batcher({ limits: setup.limits });
    this.#passes = setup.flood.some(({ targets }) => targets) ? MAX_PASSED_OVER + 1 : 1;
    // All queues are of one tenant. The flooding clients have query 1, between the queries 0 and 2 of the two other inferlets.
    this.#flood = setup.flood.map((made) => ({
      queue: this.#openQueue(new Scoreboard(), MAX_PRIORITY, 1, made.targets),
      shape: made,
      sent: 0,
    }));
    this.#victimQueues = setup.priorities.map((priorities, i) => {
      const scoreboard = new Scoreboard();
      return priorities.map((priority, depth) => {
        const queue = this.#openQueue(scoreboard, priority, i * 2);
        if (setup.deep[i]) this.#batcher.setDepth(queue, depth);
        return queue;
      });
    });
    for (const client of this.#flood) this.#send(client);
  }

  apply(operation: FloodOperation): void {
    if (operation.type === 'step') {
      this.#step(operation.ms);
      return;
    }
    const call = this.#push(this.#victimQueues[operation.space]![operation.queue]!, operation.shape);
    const { agingMs } = this.#limits;
    const urgencyMs = urgency(call, agingMs) + mostYieldMs(call, agingMs);
    this.#victims.push({ call, urgencyMs, settledMs: urgencyMs + MAX_PRIORITY * agingMs, deadline: undefined });
    this.#instants();
  }

  /** Steps until every victim has left. */
  drain(): void {
    for (let left = 100_000; left > 0 && this.#victims.length > 0; left--) this.#step(1);
    assert.equal(this.#victims.length, 0);
  }

  #openQueue(scoreboard: Scoreboard, priority: number, query: number, targets?: LatencyTargets): BatchQueue {
    const queue = this.#batcher.openQueue(scoreboard, { maxPriority: MAX_PRIORITY, query, targets });
    this.#batcher.setPriority(queue, priority);
    return queue;
  }

  #send(client: { readonly queue: BatchQueue; readonly shape: SimShape & Client; sent: number }): void {
    const { depths = [] } = client.shape;
    // Undefined for a client without depths.
    const depth = depths[client.sent++ % depths.length];
    if (depth !== undefined) this.#batcher.setDepth(client.queue, depth);
    this.#push(client.queue, client.shape);
  }

  #push(queue: BatchQueue, made: SimShape): SimCall {
    const call = new SimCall(queue, made);
    if (call.kind === 'forward' || call.kind === 'project' || call.kind === 'encode') this.#open.add(call);
    this.#batcher.push(call, this.#nowMs);
    return call;
  }

  #instants(): void {
    for (let call = this.#batcher.takeInstant(); call; call = this.#batcher.takeInstant()) {
      this.#batcher.finish(call, this.#nowMs);
      this.#removeVictim(call);
    }
  }

  #step(ms: number): void {
    this.#instants();
    let decision = this.#batcher.next(this.#nowMs);
    if (decision.kind === 'wait') {
      this.#nowMs += decision.ms;
      decision = this.#batcher.next(this.#nowMs);
    }
    assert.equal(decision.kind, 'batch', 'the flood is always ready');
    if (decision.kind !== 'batch') return;
    this.#setDeadlines();
    this.#batches++;
    this.#checkDeadlines(decision.batch);
    this.#end(decision.batch, ms);
  }

  /** For each settled victim, bounds the batches that may go before it. The batch that is leaving is the first of its bound. */
  #setDeadlines(): void {
    const { agingMs, maxTokens } = this.#limits;
    const quarter = Math.max(1, maxTokens >> 2);
    for (const victim of this.#victims) {
      if (victim.deadline !== undefined || this.#nowMs <= victim.settledMs) continue;
      let bound = 0;
      for (const call of this.#open) {
        if (urgency(call, agingMs) <= victim.urgencyMs) bound += batchesOf(call, quarter);
      }
      victim.deadline = this.#batches + bound * this.#passes;
      this.settled++;
    }
  }

  #checkDeadlines(batch: Batch): void {
    const { forwards, projections, encodings } = batch;
    const leaving = new Set<BatchCall>([...forwards.map((grant) => grant.call), ...projections, ...encodings]);
    for (const { call, deadline } of this.#victims) {
      if (deadline === undefined || leaving.has(call)) continue;
      assert.ok(
        this.#batches <= deadline,
        `a ${call.kind} is still here ${this.#batches - deadline} batches past its bound`,
      );
    }
  }

  #end(batch: Batch, ms: number): void {
    this.#nowMs += ms;
    for (const { call, tokens } of batch.forwards) {
      const done = call as SimCall;
      done.left -= tokens;
      if (done.left > 0) this.#batcher.resume(done, this.#nowMs);
      else this.#finish(done);
    }
    for (const call of [...batch.projections, ...batch.encodings]) this.#finish(call as SimCall);
    this.#batcher.ended(this.#nowMs);
  }

  #finish(call: SimCall): void {
    this.#open.delete(call);
    this.#batcher.finish(call, this.#nowMs);
    const client = this.#flood.find(({ queue }) => queue === call.queue);
    if (client) this.#send(client);
    else this.#removeVictim(call);
  }

  #removeVictim(call: BatchCall): void {
    this.#victims = this.#victims.filter((victim) => victim.call !== call);
  }
}
