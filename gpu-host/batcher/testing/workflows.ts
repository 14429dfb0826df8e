import { Random } from '#test/harness/random.ts';
import type { Grant } from '../batch.ts';
import { Batcher } from '../batcher.ts';
import { type BatchQueue, Scoreboard } from '../call.ts';
import { SimCall } from './sim-call.ts';

/** A prompt and the tokens generated after it. */
interface Generation {
  readonly prompt: number;
  readonly tokens: number;
  /** Indexes of the earlier generations of the workflow that must end before this one begins. */
  readonly needs: readonly number[];
  /** Number of generations after this one on the longest path to the workflow's end. */
  depth: number;
}

interface Query {
  readonly number: number;
  readonly startMs: number;
  readonly generations: readonly Generation[];
  readonly begun: Set<Generation>;
  readonly done: Set<number>;
  endMs: number | undefined;
}

interface MixSetup {
  readonly seed: number;
  readonly queries: number;
  /** Time between two queries, milliseconds. */
  readonly apartMs: number;
  readonly maxCalls: number;
  /** Maximum inputs of a batch; 512 by default. */
  readonly maxTokens?: number;
  /** Time of an input, ms; 0.2 by default. */
  readonly tokenMs?: number;
  /** True when the calls carry the depth of their generation. */
  readonly deep: boolean;
}

/** Calculated time of an empty step of an 8B model on one card. */
export const STEP_MS = 20;
/** Calculated time of one input of this model. */
const TOKEN_MS = 0.2;
const stepMs = (inputs: number, tokenMs = TOKEN_MS): number => STEP_MS + tokenMs * inputs;

/** Plays random workflows of one tenant in virtual time. @returns the latency of each query, milliseconds */
export function latenciesOfMix(setup: MixSetup): number[] {
  const { seed, queries: count, apartMs, maxCalls, maxTokens = 512, tokenMs, deep } = setup;
  const dice = new Random(seed);
  const batcher = new Batcher({
    limits: { maxCalls, maxTokens, agingMs: 250 },
    grace: { maxMs: 0, stepShare: 0 },
  });
  const queries = Array.from(
    { length: count },
    (_, number): Query => ({
      number,
      startMs: number * apartMs,
      generations: randomWorkflow(dice),
      begun: new Set<Generation>(),
      done: new Set<number>(),
      endMs: undefined,
    }),
  );
  const owners = new Map<SimCall, { query: Query; generation: Generation; queue: BatchQueue; isPrompt: boolean }>();
  let nowMs = 0;
  const begin = (query: Query): void => {
    for (const generation of query.generations) {
      if (query.begun.has(generation) || !generation.needs.every((need) => query.done.has(need))) continue;
      query.begun.add(generation);
      const queue = batcher.openQueue(new Scoreboard(), { tenant: 'tenant', query: query.number });
      if (deep) batcher.setDepth(queue, generation.depth);
      const call = new SimCall(queue, { kind: 'forward', tokens: generation.prompt });
      owners.set(call, { query, generation, queue, isPrompt: true });
      batcher.push(call, nowMs);
    }
  };
  const pendingQueries = [...queries];
  while (queries.some(({ endMs }) => endMs === undefined)) {
    for (let next = pendingQueries[0]; next && next.startMs <= nowMs; next = pendingQueries[0])
      begin(pendingQueries.shift() ?? next);
    const decision = batcher.next(nowMs);
    if (decision.kind !== 'batch') {
      nowMs = pendingQueries[0]?.startMs ?? nowMs;
      continue;
    }
    nowMs += stepMs(
      decision.batch.forwards.reduce((sum, { tokens }) => sum + tokens, 0),
      tokenMs,
    );
    for (const grant of decision.batch.forwards) {
      const call = noteComputed(batcher, grant, nowMs);
      if (!call) continue;
      const owner = owners.get(call);
      if (!owner) continue;
      const { query, generation, queue, isPrompt } = owner;
      if (isPrompt) {
        const run = new SimCall(queue, { kind: 'forward', run: true, tokens: generation.tokens });
        owners.set(run, { ...owner, isPrompt: false });
        batcher.push(run, nowMs);
        continue;
      }
      query.done.add(query.generations.indexOf(generation));
      if (query.done.size === query.generations.length) query.endMs = nowMs;
      else begin(query);
    }
    batcher.ended(nowMs);
  }
  return queries.map(({ startMs, endMs }) => (endMs ?? 0) - startMs);
}

interface PromptsSetup {
  readonly queries: number;
  /** Generations of each query. Each has `prompt` tokens in its prompt, and `tokens` after it. */
  readonly generations: number;
  readonly prompt: number;
  readonly tokens: number;
  /** Time between two prompts, milliseconds. The queries take turns, one prompt each. */
  readonly apartMs: number;
  readonly deep: boolean;
}

/** Plays queries of one tenant that have many long prompts each. @returns the time at which each query ends, milliseconds */
export function endsOfPrompts({ queries, generations, prompt, tokens, apartMs, deep }: PromptsSetup): number[] {
  const batcher = new Batcher({
    limits: { maxCalls: 256, maxTokens: 512, agingMs: 250 },
    grace: { maxMs: 0, stepShare: 0 },
  });
  const remaining = new Array<number>(queries).fill(generations);
  const ends = new Array<number>(queries).fill(0);
  let nowMs = 0;
  let sent = 0;
  while (remaining.some((count) => count > 0)) {
    for (; sent < queries * generations && sent * apartMs <= nowMs; sent++) {
      const queue = batcher.openQueue(new Scoreboard(), { tenant: 'tenant', query: sent % queries });
      if (deep) batcher.setDepth(queue, 1);
      batcher.push(new SimCall(queue, { kind: 'forward', tokens: prompt }, String(sent % queries)), nowMs);
    }
    const decision = batcher.next(nowMs);
    if (decision.kind !== 'batch') {
      nowMs = sent * apartMs;
      continue;
    }
    nowMs += stepMs(decision.batch.forwards.reduce((sum, grant) => sum + grant.tokens, 0));
    for (const grant of decision.batch.forwards) {
      const call = noteComputed(batcher, grant, nowMs);
      if (!call) continue;
      if (!call.continues) {
        batcher.push(new SimCall(call.queue, { kind: 'forward', run: true, tokens }, call.name), nowMs);
        continue;
      }
      const query = Number(call.name);
      remaining[query] = (remaining[query] ?? 0) - 1;
      ends[query] = nowMs;
    }
    batcher.ended(nowMs);
  }
  return ends;
}

/** Takes note of the computed tokens. @returns the call when it has ended */
function noteComputed(batcher: Batcher, grant: Grant, nowMs: number): SimCall | undefined {
  const call = grant.call as SimCall;
  call.left -= grant.tokens;
  if (call.left > 0) {
    batcher.resume(call, nowMs);
    return undefined;
  }
  batcher.finish(call, nowMs);
  return call;
}

/** From 2 to 10 generations. Each after the first needs none, only the previous one, or all previous ones. */
function randomWorkflow(dice: Random): Generation[] {
  const generations = Array.from({ length: 2 + dice.below(9) }, (_, i): Generation => {
    const choices = [[], [i - 1], Array.from({ length: i }, (_, k) => k)];
    const needs = choices[i === 0 ? 0 : dice.below(choices.length)] ?? [];
    return { prompt: 20 + dice.below(180), tokens: 8 + dice.below(56), needs, depth: 0 };
  });
  for (const { needs, depth } of generations.toReversed())
    for (const need of needs) {
      const needed = generations[need];
      if (needed) needed.depth = Math.max(needed.depth, depth + 1);
    }
  return generations;
}
