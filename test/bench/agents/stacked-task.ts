/** The work of `pie bench stacked`: an agent that calls its tool several times a turn. */

/** Optimisations of a program, in the order in which the benchmark switches them on. `STEP_NAMES` of `stacked.ts` says what each one does. */
export const STEPS = ['keep', 'concurrent', 'early', 'shared', 'forced'] as const;
export type Step = (typeof STEPS)[number];

export interface StackedInput {
  readonly question: string;
  readonly turns: number;
  readonly model: string;
  /** URL of the tool. */
  readonly tool: string;
  /** Optimisations that are switched on. */
  readonly on: readonly Step[];
}

/** Tool calls of a turn. */
export const CALLS = 3;
/** Tokens of a thought before the calls of a turn, and of the final answer. The model writes them freely. */
export const THOUGHT_TOKENS = 8;
/** Tokens of a call's argument, which the model also writes freely. */
export const ARGUMENT_TOKENS = 4;
/** `OPEN` and {@link CLOSE} surround the argument of a call, in the format of Hermes' chat templates. */
export const OPEN = '\n<tool_call>\n{"name": "look", "arguments": {"place": "';
export const CLOSE = '"}}\n</tool_call>';

/** Numbers of tokens of each call and of a whole turn. `formatTokens` is that of {@link OPEN} and {@link CLOSE} together. */
export function turnOf(formatTokens: number): { readonly call: number; readonly whole: number } {
  const call = formatTokens + ARGUMENT_TOKENS;
  return { call, whole: THOUGHT_TOKENS + CALLS * call };
}

/** Number of calls whose text is complete after `written` tokens of a turn. */
export const complete = (written: number, formatTokens: number): number =>
  Math.max(0, Math.floor((written - THOUGHT_TOKENS) / turnOf(formatTokens).call));

/** The tools as every agent's prompt describes them. */
export const SYSTEM = `You answer questions with the help of tools.
${['look', 'search', 'read', 'count', 'translate', 'plan', 'remember', 'compare']
  .map(
    (name) => `Tool ${name}: takes a place and says in a few words what it finds there. It may be called many times.`,
  )
  .join('\n')}
Write a thought, then three calls, and read what they answer. Write the answer when you know it.
`;
