/** The agents' work, the same for programs and client loops. */

export type Pattern = 'react' | 'codeact' | 'swarm';

/** One case of `pie bench agents`. */
export interface Case {
  readonly pattern: Pattern;
  readonly model: string;
  /** Number of concurrent agents; a swarm counts as four. */
  readonly agents: number;
  /** Tool calls of an agent; messages of a swarm. */
  readonly ios: number;
  readonly toolMs: number;
  readonly roundTripMs: number;
}

/** Tokens that the model writes before each tool call, as a message of a swarm, and as an answer. */
export const TURN_TOKENS = 16;
export const SWARM_AGENTS = 4;

/** The tool's answer to the call number `step`. */
export const answerOf = (step: number): string => String(12 + step);

/** The text that an agent reads after a call; in CodeACT, the output of its code. */
export const observed = (answer: string): string => `\nIt is ${answer}.`;

/** CodeACT: the code of a turn, which calls the tool and computes on its answer. Models small enough for a test write no code that runs. */
export const CODE = `
  state.step = (state.step ?? -1) + 1;
  const found = Number(await look(state.step));
  const all = (state.all ??= []);
  all.push(found);
  const highest = all.toSorted((a, b) => b - a)[0];
  console.log("It is " + highest + ".");
`;

/** The question of one agent. The questions of most numbers have the same count of tokens. */
export function questionOf(pattern: Pattern, number: number): string {
  const name = String(10_000 + (number % 90_000));
  return pattern === 'swarm'
    ? `Story ${name}. Once upon a time, four friends`
    : `Tool: look says how warm it is. Question ${name}: is it warm?\n`;
}
