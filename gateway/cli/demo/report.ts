import { duration, number } from '../format.ts';
import type { Run } from './loop.ts';

/** The runs of both sides, in pairs. */
interface Rounds {
  readonly program: readonly Run[];
  readonly loop: readonly Run[];
}

/** Order statistics of times in ms. */
interface Times {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

interface Report {
  readonly roundTripMs: number;
  readonly rounds: number;
  /** True when every run of both sides came to the same text. */
  readonly equalTexts: boolean;
  readonly equalTokens: boolean;
  /** The loop's median time divided by the program's. */
  readonly ratio: number;
  readonly program: Omit<Run, 'ms'> & { readonly ms: Times };
  readonly loop: Omit<Run, 'ms'> & { readonly ms: Times };
}

/** Compares the runs. Needs at least one of each side. */
export function reportOf({ program, loop }: Rounds, roundTripMs: number): Report {
  const [firstProgramRun] = program;
  const [firstLoopRun] = loop;
  if (firstProgramRun === undefined || firstLoopRun === undefined)
    throw new RangeError('a report needs a run of each side');
  const allRuns = [...program, ...loop];
  const programTimes = timesOf(program);
  const loopTimes = timesOf(loop);
  return {
    roundTripMs,
    rounds: program.length,
    equalTexts: allRuns.every(({ text }) => text === firstProgramRun.text),
    equalTokens: allRuns.every(({ tokens }) => tokens === firstProgramRun.tokens),
    ratio: loopTimes.median / programTimes.median,
    program: { ...firstProgramRun, ms: programTimes },
    loop: { ...firstLoopRun, ms: loopTimes },
  };
}

function timesOf(runs: readonly Run[]): Times {
  const sorted = runs.map(({ ms }) => ms).toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return { median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2, min: at(0), max: at(sorted.length - 1) };
}

/** The rows of the table: figure, program, loop. */
export function rowsOf({ program, loop }: Report): string[][] {
  const time = ({ median, min, max }: Times) => `${duration(median)} (${duration(min)} to ${duration(max)})`;
  return [
    ['time', time(program.ms), time(loop.ms)],
    ['HTTP requests', number(program.requests), number(loop.requests)],
    ['prompt tokens sent', number(program.promptTokens), number(loop.promptTokens)],
    ['tokens of the model', number(program.tokens), number(loop.tokens)],
  ];
}

/** Notes on the meaning of the figures and on the costs that they leave out. */
export function remarksOf({ roundTripMs, rounds, equalTexts, equalTokens, ratio, program, loop }: Report): string[] {
  const roundTripText =
    roundTripMs > 0
      ? `${roundTripMs} ms are added to each request as the round trip of a network.`
      : 'Client and platform share this machine, so a round trip takes no time: --round-trip 20 adds that of a network.';
  const differenceIndex = [...program.text].findIndex((character, i) => character !== [...loop.text][i]);
  return [
    ratio >= 1
      ? `The function takes ${(100 - 100 / ratio).toFixed(0)} % less time than the loop (median of ${rounds} runs each, in turn).`
      : `The loop takes ${(100 - 100 * ratio).toFixed(0)} % less time than the function (median of ${rounds} runs each, in turn).`,
    roundTripText,
    'Both ran once before, so the prefix cache holds all that the loop sends: its best case.',
    equalTexts
      ? `Both texts are equal${equalTokens ? '' : ', but their counts of tokens differ'}.`
      : `The texts differ${differenceIndex < 0 ? '' : ` from character ${differenceIndex + 1} on`}.`,
  ];
}
