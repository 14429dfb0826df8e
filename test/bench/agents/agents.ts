import type { Bench } from '../bench.ts';
import { firstDifference, inTurn } from '../rounds.ts';
import { format, formatSpread, mean, type Spread, spread, spreadOver } from '../statistics.ts';
import { type Complete, type Conversation, codeactLoop, type LoopTask, reactLoop, swarmLoop } from './client-loop.ts';
import { fastestPeers, type Peer } from './peers.ts';
import { questions } from './questions.ts';
import { type Case, type Pattern, SWARM_AGENTS, TURN_TOKENS } from './task.ts';
import { uncached, World } from './world.ts';

const STORIES = 'stories15m';
/** A model whose context is long enough for conversations of 32 tool calls. */
const LONG_CONTEXT_MODEL = 'minimind2-small';
const PATTERNS: readonly Pattern[] = ['react', 'codeact', 'swarm'];
const LOOPS = { react: reactLoop, codeact: codeactLoop, swarm: swarmLoop };

const base: Case = { pattern: 'react', model: STORIES, agents: 8, ios: 8, toolMs: 20, roundTripMs: 20 };
const ALL_CASES: readonly Case[] = [
  ...PATTERNS.flatMap((pattern) =>
    [0, 20, 80].flatMap((roundTripMs) => [1, 8, 32].map((agents) => ({ ...base, pattern, roundTripMs, agents }))),
  ),
  ...[1, 8, 32].map((agents) => ({ ...base, toolMs: 50, agents })),
  ...[0, 2, 8, 16, 32].map((ios) => ({ ...base, model: LONG_CONTEXT_MODEL, ios })),
];
/** I/Os of a quick run. A swarm sends as many messages as it has agents. */
const QUICK_IOS = { react: 2, codeact: 2, swarm: SWARM_AGENTS };
const QUICK_CASES: readonly Case[] = PATTERNS.map((pattern) => ({ ...base, pattern, ios: QUICK_IOS[pattern] }));

/** Results of one side (the programs, or one of the baselines) in one case, whose agents run all at once. */
interface SideRun {
  /** Mean over the agents (or swarms) of the time from their common start until the client has the agent's result, ms. */
  readonly latencyMs: number;
  /** Agents that ended per second; a swarm counts as its four agents. */
  readonly agentsPerSecond: number;
  /** One conversation for each agent, or for each swarm. */
  readonly conversations: readonly Conversation[];
}

/** Runs an agent, or a whole swarm, with a question. At a peer that has sessions, `index` is the number of its session. */
type RunAgent = (index: number, question: string) => Promise<Conversation>;

/** Results of one case by side: `program`, `loop`, `refill` (the loop without a prefix cache) and `peer` (node-llama-cpp). */
interface Row extends Case {
  /** One value for each round. */
  readonly latencyMs: Record<string, readonly number[]>;
  /** One value for each round. */
  readonly agentsPerSecond: Record<string, readonly number[]>;
  /**
   * Conversations of the warm-up that equal the reference's for the same question, as `equal/all`. The reference is the program; for a swarm's peer
   * it is the client loop.
   */
  readonly equal: Record<string, string>;
}

/** Compares agents as programs with the same agents as loops of their clients. */
export const agents: Bench = {
  name: 'agents',
  summary: 'agents as programs over client loops with and without prefix cache, and on node-llama-cpp',
  help: `Agents write ${TURN_TOKENS} tokens, call a tool over HTTP, read its answer, and so on (ReACT); or run code that calls it (CodeACT); or
four of them tell a story in turns (the function agent-swarm). Baselines of every round: the same agents as loops of their clients over
/v1/completions, with the prefix cache and on a model without it, and over node-llama-cpp behind HTTP, which keeps each conversation's keys and
values. Tool and network are processes of their own: a real HTTP server, and a proxy that passes bytes on after half of the round trip. Prompts
are token ids, so that no side tokenizes a text in another way. In the round that warms up, all sides have the same questions, and the report
counts the agents whose tokens equal those of the program. In the measured rounds every question is new, and only the numbers of tokens must be equal.
Sides take turns in going first.`,
  quick: `${QUICK_CASES.length} of ${ALL_CASES.length} cases: each kind of agent, ${base.agents} at once with ${PATTERNS.map((pattern) => QUICK_IOS[pattern]).join(', ')} I/Os, at a round trip of ${base.roundTripMs} ms, on ${STORIES}.`,
  async run({ repetitions, quick, progress }) {
    const cases = quick ? QUICK_CASES : ALL_CASES;
    await using world = await World.start({
      models: [...new Set(cases.map(({ model }) => model))],
      roundTripsMs: [...new Set(cases.map(({ roundTripMs }) => roundTripMs))],
      programs: ['agent'],
      functions: ['agent-swarm'],
      peer: { sequences: Math.max(...cases.map(({ agents: count }) => count)) },
      progress,
    });
    const roundTrips = await world.roundTrips();
    const peers = await fastest(world);
    const rows: Row[] = [];
    for (const benchCase of cases) {
      const row = await measureCase(world, benchCase, peers.get(benchCase.model), repetitions);
      rows.push(row);
      progress(`${labelOf(benchCase)}: ${format(over(row, 'loop').median)} over the client loop`);
    }
    return {
      title: `Agents as programs and as client loops, ${TURN_TOKENS} tokens a turn`,
      header: [
        'agent',
        'model',
        'agents',
        'I/Os',
        'tool ms',
        'round trip ms',
        'program, ms an agent',
        'over the client loop',
        'throughput over it',
        'over re-prefilling',
        'over node-llama-cpp',
        'agents with equal tokens: loop, re-prefilling, node-llama-cpp',
      ],
      rows: rows.map((row) => [
        row.pattern,
        row.model,
        String(row.agents),
        String(row.ios),
        row.pattern === 'swarm' ? '' : String(row.toolMs),
        String(row.roundTripMs),
        formatSpread(spread(row.latencyMs.program ?? []), 0),
        formatSpread(over(row, 'loop')),
        formatSpread(throughputOver(row, 'loop')),
        formatSpread(over(row, 'refill')),
        row.latencyMs.peer ? formatSpread(over(row, 'peer')) : '',
        ['loop', 'refill', 'peer'].map((side) => row.equal[side] ?? '').join(', '),
      ]),
      notes: [
        `"Over": the mean time of an agent on the other side, divided by the mean time of an agent as a program in the same round; ${spreadOver(repetitions)}. "Throughput over it": agents a second as programs, divided by agents a second as client loops.`,
        'Aims over the client loop: 1.3 at 8 agents and 1.15 at 32 for a round trip of 20 ms; 2 and 1.5 for 80 ms.',
        'All sides compute equally many tokens. Every round checks that; for a swarm as a program it checks the number of messages.',
        'Agents with equal tokens: those of the warm-up, in which all sides have the same questions. Sides add floats in different orders, which may choose another token where two are nearly as probable.',
        'A swarm has four agents, and its I/Os are their messages; it calls no tool. Its time is that of the whole swarm. The row with 1 agent is one swarm.',
        `Measured round trips of an empty request, ms: ${Object.entries(roundTrips)
          .map(([set, ms]) => `${set}: ${format(ms, 1)}`)
          .join(', ')}.`,
        `node-llama-cpp runs with the number of threads that was faster in a run before the rounds: ${[...peers.values()].map(({ model, threads }) => `${threads} for ${model}`).join(', ')}.`,
      ],
      data: {
        roundTrips,
        peerThreads: [...peers.values()].map(({ model, threads }) => ({ model, threads })),
        cases: rows,
      },
    };
  },
};

async function measureCase(world: World, benchCase: Case, peer: Peer | undefined, rounds: number): Promise<Row> {
  const sides = new Map<string, RunAgent>([
    ['program', program(world, benchCase)],
    [
      'loop',
      loop(world, benchCase, (prompt, maxTokens) =>
        world.complete(benchCase.roundTripMs, benchCase.model, prompt, maxTokens),
      ),
    ],
    [
      'refill',
      loop(world, benchCase, (prompt, maxTokens) =>
        world.complete(benchCase.roundTripMs, uncached(benchCase.model), prompt, maxTokens),
      ),
    ],
  ]);
  // Each question starts one agent, or one swarm of four.
  const questionCount = benchCase.pattern === 'swarm' ? Math.ceil(benchCase.agents / SWARM_AGENTS) : benchCase.agents;
  const newQuestions = questions(world.tokensOf(benchCase.model), benchCase.pattern, questionCount);
  const warmUpQuestions = newQuestions();
  const warmUps = new Map<string, SideRun>();
  if (peer !== undefined) sides.set('peer', peerAgent(world, benchCase, peer));
  for (const [name, side] of sides) warmUps.set(name, await runAgents(benchCase, side, warmUpQuestions));
  const row: Row = { ...benchCase, latencyMs: {}, agentsPerSecond: {}, equal: {} };
  for (const [name, { conversations }] of warmUps) {
    // A swarm's program returns only text, and the peer only tokens: these two cannot be compared. The loop returns both.
    const reference = benchCase.pattern === 'swarm' && name === 'peer' ? 'loop' : 'program';
    const references = warmUps.get(reference)?.conversations ?? [];
    const equal = conversations.filter((each, i) => areEqual(each, references[i])).length;
    row.equal[name] = `${equal}/${conversations.length}`;
  }
  const samples = new Map<string, SideRun[]>([...sides.keys()].map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    const names = [...sides.keys()];
    const runAll = names.map((name) => () => runAgents(benchCase, sides.get(name) as RunAgent, newQuestions()));
    for (const [i, run] of (await inTurn(round, runAll)).entries()) samples.get(names[i] as string)?.push(run);
  }
  checkLengths(benchCase, [...samples.values()].flat());
  for (const [name, list] of samples) {
    row.latencyMs[name] = list.map(({ latencyMs }) => latencyMs);
    row.agentsPerSecond[name] = list.map(({ agentsPerSecond }) => agentsPerSecond);
  }
  return row;
}

/** Runs all agents of the case at once: one agent, or one swarm, for each question. */
async function runAgents(benchCase: Case, run: RunAgent, questionsToAsk: readonly string[]): Promise<SideRun> {
  const startMs = performance.now();
  const ended = await Promise.all(
    questionsToAsk.map(async (question, i) => {
      const conversation = await run(i, question);
      return { conversation, latencyMs: performance.now() - startMs };
    }),
  );
  const elapsedMs = performance.now() - startMs;
  return {
    latencyMs: mean(ended.map(({ latencyMs }) => latencyMs)),
    agentsPerSecond: (benchCase.agents * 1000) / elapsedMs,
    conversations: ended.map(({ conversation }) => conversation),
  };
}

function program(world: World, { pattern, ios, model, toolMs, roundTripMs }: Case): RunAgent {
  if (pattern !== 'swarm')
    return (_, question) =>
      world.invoke(roundTripMs, 'agent', { pattern, question, ios, model, tool: world.toolUrl(toolMs) });
  return async (_, prompt) => {
    const input = { prompt, model, agents: SWARM_AGENTS, messages: ios, maxTokens: TURN_TOKENS };
    const { text, messages } = await world.invoke<{ text: string; messages: number }>(
      roundTripMs,
      'agent-swarm',
      input,
    );
    if (messages !== ios) throw new Error(`the swarm told ${messages} of ${ios} messages`);
    return { text };
  };
}

function loop(world: World, benchCase: Case, complete: Complete): RunAgent {
  return (_, question) => LOOPS[benchCase.pattern](loopTask(world, benchCase, question, complete));
}

function loopTask(world: World, { model, ios, toolMs }: Case, question: string, complete: Complete): LoopTask {
  return { question, ios, complete, tokens: world.tokensOf(model), callTool: (step) => world.callTool(toolMs, step) };
}

/** For each model: the peer whose number of threads is faster for eight agents with one call each. */
function fastest(world: World): Promise<Map<string, Peer>> {
  return fastestPeers(world.peers, (peer) => {
    const benchCase: Case = { ...base, model: peer.model, ios: 1, roundTripMs: world.roundTripsMs[0] ?? 0 };
    return runAgents(
      benchCase,
      peerAgent(world, benchCase, peer),
      questions(world.tokensOf(benchCase.model), benchCase.pattern, benchCase.agents)(),
    );
  });
}

function peerAgent(world: World, benchCase: Case, peer: Peer): RunAgent {
  const url = world.peer(peer, benchCase.roundTripMs);
  return (session, question) => {
    const complete: Complete = (prompt, maxTokens) => world.post(url, { session, prompt, max_tokens: maxTokens });
    return LOOPS[benchCase.pattern](loopTask(world, benchCase, question, complete));
  };
}

/** Compares the tokens if both sides return them, else the texts. */
function areEqual(a: Conversation, b: Conversation | undefined): boolean {
  if (a.tokens !== undefined && b?.tokens !== undefined) return firstDifference(a.tokens, b.tokens) < 0;
  return a.text !== undefined && a.text === b?.text;
}

/** @throws Error when the conversations do not all have equally many tokens */
function checkLengths(benchCase: Case, runs: readonly SideRun[]): void {
  const lengths = runs.flatMap(({ conversations }) => conversations.flatMap(({ tokens }) => tokens?.length ?? []));
  if (new Set(lengths).size > 1)
    throw new Error(
      `${labelOf(benchCase)}: the conversations have ${[...new Set(lengths)].join(', ')} tokens, not equally many`,
    );
}

/** Latency of another side divided by the program's, in each round. */
const over = (row: Row, side: string): Spread =>
  spread((row.latencyMs[side] ?? []).map((other, i) => other / (row.latencyMs.program?.[i] ?? Number.NaN)));

/** Throughput of the program divided by that of another side, in each round. */
const throughputOver = (row: Row, side: string): Spread =>
  spread((row.agentsPerSecond[side] ?? []).map((other, i) => (row.agentsPerSecond.program?.[i] ?? Number.NaN) / other));

const labelOf = ({ pattern, agents: count, ios, toolMs, roundTripMs }: Case): string =>
  `${pattern}, ${count} agents, ${ios} I/Os, tool ${toolMs} ms, round trip ${roundTripMs} ms`;
