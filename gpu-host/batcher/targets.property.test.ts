import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Batcher } from './batcher.ts';
import type { LatencyTargets } from './call.ts';
import { type BatchQueue, Scoreboard } from './call.ts';
import { SimCall } from './testing/sim-call.ts';

/** Calculated milliseconds of a step of an 8B model on one card: a fixed time for the weights, and the time of the inputs and sequences. */
const stepMs = (tokens: number, calls: number): number => 6 + 0.03 * tokens + 0.02 * calls;
/** Duration of a step with as many inputs and sequences as a batch may have. */
const FLOOD_STEP_MS = stepMs(512, 128);
const TARGETS = { firstTokenMs: 40, perTokenMs: 15 };
const DURATION_MS = 60_000;

interface Load {
  /** Inferlets that send prompts and decode without pause. */
  readonly flood: number;
  readonly promptTokens: number;
  readonly decodeTokens: number;
  /** Mean time between two live requests. A live request has latency targets. */
  readonly everyMs: number;
  readonly livePromptTokens: number;
  readonly liveTokens: number;
}

interface Served {
  /** Times from a live request to the end of its prompt's last step. */
  readonly firstMs: readonly number[];
  /** Times between two tokens of a live request. */
  readonly gapMs: readonly number[];
  /** Inputs of the flood that were computed. */
  readonly floodTokens: number;
  /** Longest time that an inferlet of the flood computed nothing. */
  readonly longestPauseMs: number;
}

interface Client {
  readonly queue: BatchQueue;
  readonly isLive: boolean;
  phase: 'prompt' | 'decode';
  /** End of the last step that computed inputs of a flooding client, or gave a live client a token. */
  lastMs: number;
}

/** Plays a minute of virtual time. */
function play(load: Load, targets: LatencyTargets | undefined, seed: number): Served {
  const batcher = new Batcher();
  const clients = new Map<BatchQueue, Client>();
  const firstMs: number[] = [];
  const gapMs: number[] = [];
  let nowMs = 0;
  let floodTokens = 0;
  let longestPauseMs = 0;
  let state = seed;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state + 1) / 2 ** 32;
  };
  const prompt = (client: Client, cameMs = nowMs): void => {
    client.phase = 'prompt';
    const tokens = client.isLive ? load.livePromptTokens : Math.ceil(load.promptTokens * (0.5 + random()));
    batcher.push(new SimCall(client.queue, { kind: 'forward', tokens }), cameMs);
  };
  const open = (isLive: boolean, cameMs: number): void => {
    const queue = batcher.openQueue(new Scoreboard(), { targets: isLive ? targets : undefined });
    const client: Client = { queue, isLive, phase: 'prompt', lastMs: cameMs };
    clients.set(queue, client);
    prompt(client, cameMs);
  };
  const finish = (call: SimCall, client: Client): void => {
    batcher.finish(call, nowMs);
    if (client.phase === 'prompt') {
      client.phase = 'decode';
      const tokens = client.isLive ? load.liveTokens : load.decodeTokens;
      batcher.push(new SimCall(client.queue, { kind: 'forward', run: true, tokens }), nowMs);
    } else if (client.isLive) {
      batcher.closeQueue(client.queue);
      clients.delete(client.queue);
    } else prompt(client);
  };
  for (let i = 0; i < load.flood; i++) open(false, 0);
  for (let nextMs = 1000; nowMs < DURATION_MS; ) {
    while (nextMs <= nowMs) {
      open(true, nextMs);
      nextMs += Math.log(1 / random()) * load.everyMs;
    }
    const decision = batcher.next(nowMs);
    if (decision.kind !== 'batch') {
      nowMs = decision.kind === 'wait' ? Math.min(nextMs, nowMs + decision.ms) : nextMs;
      continue;
    }
    const { forwards } = decision.batch;
    nowMs += stepMs(
      forwards.reduce((sum, { tokens }) => sum + tokens, 0),
      forwards.length,
    );
    for (const { call, tokens } of forwards) {
      const client = clients.get(call.queue) as Client;
      const sim = call as SimCall;
      sim.left -= tokens;
      const tookMs = nowMs - client.lastMs;
      if (!client.isLive) {
        floodTokens += tokens;
        longestPauseMs = Math.max(longestPauseMs, tookMs);
      } else if (client.phase === 'decode') gapMs.push(tookMs);
      else if (sim.left === 0) firstMs.push(nowMs - sim.arrivedMs);
      if (!client.isLive || client.phase === 'decode' || sim.left === 0) client.lastMs = nowMs;
      if (sim.left === 0) finish(sim, client);
      else batcher.resume(sim, nowMs);
    }
    batcher.ended(nowMs);
  }
  return { firstMs, gapMs, floodTokens, longestPauseMs };
}

const p99 = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1]!;

const loads: fc.Arbitrary<Load> = fc.record({
  flood: fc.integer({ min: 16, max: 96 }),
  promptTokens: fc.integer({ min: 200, max: 4000 }),
  decodeTokens: fc.integer({ min: 8, max: 128 }),
  everyMs: fc.integer({ min: 1000, max: 3000 }),
  livePromptTokens: fc.integer({ min: 17, max: 256 }),
  liveTokens: fc.integer({ min: 1, max: 12 }),
});

test('a prompt with targets takes at most two steps of the flood longer than alone, and the flood keeps nine tenths of its throughput', (t) => {
  let worstSteps = 0;
  let leastShare = 1;
  let worstWithoutTargets = 0;
  fc.assert(
    fc.property(loads, fc.nat(), (load, seed) => {
      const alone = play({ ...load, flood: 0 }, TARGETS, seed);
      const ordinary = play(load, undefined, seed);
      const withTargets = play(load, TARGETS, seed);
      const steps = (p99(withTargets.firstMs) - p99(alone.firstMs)) / FLOOD_STEP_MS;
      const share = withTargets.floodTokens / ordinary.floodTokens;
      worstSteps = Math.max(worstSteps, steps);
      leastShare = Math.min(leastShare, share);
      worstWithoutTargets = Math.max(worstWithoutTargets, (p99(ordinary.firstMs) - p99(alone.firstMs)) / FLOOD_STEP_MS);
      assert.ok(steps <= 2, `${steps} steps of the flood`);
      assert.ok(share >= 0.9, `the flood has ${share} of its throughput`);
      assert.ok(withTargets.longestPauseMs <= 2 * ordinary.longestPauseMs, 'the flood starves');
    }),
    { seed: 20261122, numRuns: process.env.PIE_TEST_ALL ? 100 : 12 },
  );
  t.diagnostic(
    `p99 of the first token above alone: at most ${worstSteps.toFixed(2)} steps, without targets ${worstWithoutTargets.toFixed(2)}; throughput of the flood at least ${leastShare.toFixed(3)}`,
  );
});
