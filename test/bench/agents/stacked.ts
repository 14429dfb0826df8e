import type { Bench } from '../bench.ts';
import { firstDifference, inTurn, warmUp } from '../rounds.ts';
import { format, formatSpread, mean, spread, spreadOver } from '../statistics.ts';
import { questions } from './questions.ts';
import { CALLS, CLOSE, OPEN, STEPS, type Step, SYSTEM, THOUGHT_TOKENS, turnOf } from './stacked-task.ts';
import { observed } from './task.ts';
import type { TextTokens } from './tokens.ts';
import { uncached, World } from './world.ts';

const MODEL = 'minimind2-small';
const PROGRAM = 'stacked-agent';
const TURNS = 3;
const QUICK_TURNS = 1;
const TOOL_MS = 50;

/** Agents that run at once, and the round trip of their network. */
interface Crowd {
  readonly agents: number;
  readonly roundTripMs: number;
}

const QUICK_CROWDS: readonly Crowd[] = [{ agents: 1, roundTripMs: 20 }];
const ALL_CROWDS: readonly Crowd[] = [
  ...[1, 8, 32].map((agents) => ({ agents, roundTripMs: 20 })),
  { agents: 8, roundTripMs: 80 },
];

/** Names of the steps in the report. Each step adds its optimisation to those of the step before. */
const STEP_NAMES: Readonly<Record<Step, string>> = {
  keep: '+ keys and values kept across calls',
  concurrent: '+ calls of a turn at once',
  early: '+ calls while the model writes on',
  shared: '+ system prompt computed once for all agents',
  forced: '+ format of the calls filled in, not decoded',
};

interface Row extends Crowd {
  /** Name of the way to run the agent; see {@link Way}. */
  readonly way: string;
  readonly latencyMs: readonly number[];
  /** Agents of the warm-up whose tokens equal the client loop's for the same question, as `equal/all`. */
  readonly equal: string;
}

interface Task {
  readonly question: string;
  readonly turns: number;
}

/** One way to run the agent. */
interface Way {
  readonly name: string;
  /** Returns all tokens of the agent's context. */
  readonly run: (world: World, crowd: Crowd, task: Task) => Promise<readonly number[]>;
}

const WAYS: readonly Way[] = [
  { name: 'client loop', run: loop(MODEL, false) },
  { name: 'client loop, calls of a turn at once', run: loop(MODEL, true) },
  { name: 'client loop, re-prefilling', run: loop(uncached(MODEL), false) },
  { name: 'program that does the same without a cache', run: program([]) },
  ...STEPS.map((step, i) => ({ name: STEP_NAMES[step], run: program(STEPS.slice(0, i + 1)) })),
];

/** Compares an agent with its client loop while the agent's optimisations are switched on one after the other. */
export const stacked: Bench = {
  name: 'stacked',
  summary: 'optimisations of an agent, each on top of those before, over the client loop',
  help: `An agent makes ${TURNS} turns: it writes a thought and ${CALLS} calls, reads what the tool answers after ${TOOL_MS} ms each, and at last
writes an answer. The baseline is the agent as its client's loop over /v1/completions with the prefix cache, one call after another. The program
runs on a model without the automatic prefix cache, so that it has only what it keeps itself. Each row adds one optimisation. The texts of the
last row differ: there the format of the calls is filled in, while the model of a test cannot write it. All ways have equally many tokens, which
is checked. A round runs all ways, which take turns in going first, after one that warms them.`,
  quick: `${QUICK_CROWDS.length} of ${ALL_CROWDS.length} crowds: one agent, with ${QUICK_TURNS} turn instead of ${TURNS}, in all ways. With fewer turns it gains less by what it keeps across calls.`,
  async run({ repetitions, quick, progress }) {
    const [crowds, turns] = quick ? [QUICK_CROWDS, QUICK_TURNS] : [ALL_CROWDS, TURNS];
    await using world = await World.start({
      models: [MODEL],
      roundTripsMs: [...new Set(crowds.map(({ roundTripMs }) => roundTripMs))],
      programs: [PROGRAM],
      peer: false,
      progress,
    });
    const data: Row[] = [];
    for (const crowd of crowds) {
      const rows = await measureCrowd(world, crowd, turns, repetitions);
      data.push(...rows);
      const gain = gainOf(rows[0]?.latencyMs ?? [], rows.at(-1)?.latencyMs ?? []);
      progress(
        `${crowd.agents} agents, round trip ${crowd.roundTripMs} ms: ${format(gain.median)} over the client loop`,
      );
    }
    const baselineOf = (crowd: Crowd) =>
      data.find(({ agents, roundTripMs }) => agents === crowd.agents && roundTripMs === crowd.roundTripMs)?.latencyMs;
    return {
      title: `An agent with ${CALLS} calls a turn, its optimisations switched on in turn, ${MODEL}`,
      header: [
        'agents',
        'round trip ms',
        'way',
        'ms an agent',
        'over the client loop',
        'agents with the tokens of the loop',
      ],
      rows: data.map((row) => [
        String(row.agents),
        String(row.roundTripMs),
        row.way,
        formatSpread(spread(row.latencyMs), 0),
        formatSpread(gainOf(baselineOf(row) ?? [], row.latencyMs)),
        row.equal,
      ]),
      notes: [
        `"Over": time of an agent of the client loop over that of this way in the same round, the mean of the agents; ${spreadOver(repetitions)}. Aim of the last row: 3.`,
        `${turns === 1 ? '1 turn' : `${turns} turns`} of ${CALLS} calls; the tool takes ${TOOL_MS} ms; a system prompt of ${tokensOf(world).begin(SYSTEM).length} tokens; ${turnOf(formatTokens(world)).whole} tokens a turn, ${CALLS * formatTokens(world)} of them the format of the calls.`,
        'All ways have equally many tokens. The last row fills in the format, so its texts differ from what the model writes freely.',
      ],
      data,
    };
  },
};

async function measureCrowd(world: World, crowd: Crowd, turns: number, rounds: number): Promise<Row[]> {
  const newQuestions = questions(tokensOf(world), 'react', crowd.agents);
  const runsOf = (ask: () => readonly string[]) =>
    WAYS.map((way) => () => {
      const tasks = ask().map((question) => ({ question, turns }));
      return runAgents(world, crowd, way, tasks);
    });
  // In the warm-up all ways get the same questions, so that their tokens can be compared.
  const warmUpQuestions = newQuestions();
  const warm = await warmUp(runsOf(() => warmUpQuestions));
  const samples: (typeof warm)[] = [];
  for (let round = 0; round < rounds; round++) samples.push(await inTurn(round, runsOf(newQuestions)));
  const lengths = new Set([warm, ...samples].flat().flatMap(({ tokens }) => tokens.map(({ length }) => length)));
  if (lengths.size > 1) throw new Error(`the ways have ${[...lengths].join(', ')} tokens, not equally many`);
  return WAYS.map(({ name }, i) => {
    const conversations = warm[i]?.tokens ?? [];
    const equal = conversations.filter(
      (tokens, agent) => firstDifference(tokens, warm[0]?.tokens[agent] ?? []) < 0,
    ).length;
    const latencyMs = samples.map((sample) => sample[i]?.latencyMs ?? Number.NaN);
    return { ...crowd, way: name, latencyMs, equal: `${equal}/${conversations.length}` };
  });
}

const gainOf = (baseline: readonly number[], latenciesMs: readonly number[]) =>
  spread(latenciesMs.map((latencyMs, i) => (baseline[i] ?? Number.NaN) / latencyMs));

async function runAgents(world: World, crowd: Crowd, way: Way, tasks: readonly Task[]) {
  const startMs = performance.now();
  const ended = await Promise.all(
    tasks.map(async (task) => {
      const tokens = await way.run(world, crowd, task);
      return { tokens, latencyMs: performance.now() - startMs };
    }),
  );
  return { latencyMs: mean(ended.map(({ latencyMs }) => latencyMs)), tokens: ended.map(({ tokens }) => tokens) };
}

function program(on: readonly Step[]): Way['run'] {
  return async (world, { roundTripMs }, task) => {
    const input = { ...task, model: uncached(MODEL), tool: world.toolUrl(TOOL_MS), on };
    return (await world.invoke<{ tokens: readonly number[] }>(roundTripMs, PROGRAM, input)).tokens;
  };
}

function loop(model: string, concurrent: boolean): Way['run'] {
  return async (world, { roundTripMs }, { question, turns }) => {
    const tokens = tokensOf(world);
    const { whole } = turnOf(formatTokens(world));
    const contextTokens = [...tokens.begin(SYSTEM), ...tokens.more(question)];
    const write = async (maxTokens: number) => {
      contextTokens.push(...(await world.complete(roundTripMs, model, contextTokens, maxTokens)).tokens);
    };
    for (let turn = 0; turn < turns; turn++) {
      await write(whole);
      const calls: Promise<string>[] = [];
      for (let call = 0; call < CALLS; call++) {
        calls.push(world.callTool(TOOL_MS, turn * CALLS + call));
        if (!concurrent) await calls[call];
      }
      for (const answer of await Promise.all(calls)) contextTokens.push(...tokens.more(observed(answer)));
    }
    await write(THOUGHT_TOKENS);
    return contextTokens;
  };
}

const formatTokens = (world: World): number => tokensOf(world).more(OPEN).length + tokensOf(world).more(CLOSE).length;

const tokensOf = (world: World): TextTokens => world.tokensOf(MODEL);
