import path from 'node:path';
import { PieError } from '../../client/errors.ts';
import { Http, pause } from '../../client/http.ts';
import { type Call, defineCommand } from '../command.ts';
import { PROGRAM, type Run, runLoop, runProgram, type Side, TASK } from '../demo/loop.ts';
import { remarksOf, reportOf, rowsOf } from '../demo/report.ts';
import { Screen } from '../demo/screen.ts';
import { EXIT, Failure } from '../failure.ts';
import { wholeNumber } from '../format.ts';
import { findFunction } from '../function-source.ts';
import { ROOT } from '../paths.ts';
import { deployFunction } from './deploy.ts';

const ROUNDS = 5;
const MAX_ROUNDS = 100;
/** The default model; it generates stories. */
const MODEL = 'stories15m';
const MAX_ROUND_TRIP_MS = 10_000;
/** Longest wait for the functions that a starting platform deploys. After it, the demo deploys its own function itself. */
const START_MS = 180_000;
const POLL_MS = 500;

export const demo = defineCommand({
  name: 'demo',
  summary: 'Show a program and the equivalent client loop side by side',
  description:
    'Runs one agent, with tool calls and forks, as a function and as a client loop over /v1/completions. Shows their texts, times, requests and tokens. ' +
    'The two sides take turns. Each runs once before the counted runs.',
  options: [
    {
      flags: '--round-trip <ms>',
      help: 'add this to each request of both sides, as a network would (default: 0)',
      parse: wholeNumber(0, MAX_ROUND_TRIP_MS),
    },
    {
      flags: '--rounds <count>',
      help: `counted runs of each side (default: ${ROUNDS})`,
      parse: wholeNumber(1, MAX_ROUNDS),
    },
    { flags: '--model <name>', help: `one of the platform’s models (default: ${MODEL}, or else the first)` },
  ],
  examples: [
    { line: 'pie demo', does: 'compares both on this machine' },
    { line: 'pie demo --round-trip 20', does: 'as from a client that is 20 ms away' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    const { roundTrip: roundTripMs = 0, rounds = ROUNDS } = options;
    const { client, credentials } = await call.connect();
    const progress = terminal.progress(`Deploying ${PROGRAM}`);
    try {
      await waitForFirstFunctions(call);
      const source = findFunction(path.join(ROOT, 'functions', PROGRAM), undefined);
      await deployFunction(client, source, { signal, onlyNew: true }).catch(async (error: unknown) => {
        // A key that may only invoke cannot deploy: run the deployed version, if there is one.
        if (!(error instanceof PieError) || error.code !== 'forbidden') throw error;
        const functions = await client.functions({ signal });
        if (!functions.some(({ name }) => name === PROGRAM)) throw error;
      });
    } finally {
      progress.clear();
    }

    const task = { ...TASK, model: options.model ?? (await defaultModel(call)) };
    const http = new Http(credentials);
    const screen = new Screen(terminal, ['function: 1 invocation', 'client loop: /v1/completions']);
    const side = (at: 0 | 1): Side => ({ task, roundTripMs, signal, show: (piece) => screen.add(at, piece) });
    const sides = [() => runProgram(client, side(0)), () => runLoop(http, side(1))] as const;
    const runs: [Run[], Run[]] = [[], []];
    for (let round = 0; round <= rounds; round++) {
      screen.clear(round === 0 ? 'warm-up' : `run ${round} of ${rounds}`);
      // Each side goes first in every second round.
      for (const at of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
        const run = await sides[at]();
        screen.done(at, run);
        if (round > 0) runs[at].push(run);
      }
    }
    screen.leave();
    const report = reportOf({ program: runs[0], loop: runs[1] }, roundTripMs);
    if (report.program.tokens === 0)
      throw new Failure(`${task.model} ends the story at once, so there is nothing to compare.`, {
        code: 'no-tokens',
        advice: `Leave --model out, or name a model that continues a text, such as ${MODEL}.`,
      });
    terminal.value({ model: task.model, ...report });
    if (!terminal.redraws) terminal.print(`${report.program.text}\n`);
    terminal.table(['', 'function', 'client loop'], rowsOf(report), '');
    for (const line of ['', ...remarksOf(report)]) terminal.print(line);
    return report.equalTexts && report.equalTokens ? EXIT.ok : EXIT.failed;
  },
});

/** Waits for the functions that a starting platform deploys. The demo's function is one of them, so the demo then need not build it. */
async function waitForFirstFunctions({ connect, signal }: Call): Promise<void> {
  const { client } = await connect();
  const deadline = performance.now() + START_MS;
  while (performance.now() < deadline) {
    const { checks } = await client.ready({ signal });
    if (checks.every(({ name, ok }) => ok || name !== 'functions')) return;
    await pause(POLL_MS, signal);
  }
}

/** The default model if the platform serves it, or else the first model that generates text. */
async function defaultModel({ connect, signal }: Call): Promise<string> {
  const { client } = await connect();
  const models = await client.models({ signal });
  const causal = models.filter(({ kind, aliasOf }) => kind === 'causal' && aliasOf === undefined);
  const first = causal.find(({ name }) => name === MODEL) ?? causal[0];
  if (first !== undefined) return first.name;
  throw new Failure('The platform serves no model that generates text.', {
    exitCode: EXIT.unreachable,
    code: 'no-model',
    advice: 'Add a [[model]] to pie.toml, such as name = "stories15m", and start the platform again.',
  });
}
