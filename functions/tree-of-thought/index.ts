import { defineInferlet, regex, sampler, scripts, sendJson } from '@pie/inferlet';
import { gen, program, type State, type Variable } from '@pie/inferlet/workflow';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly problem: string;
  readonly steps?: number;
  readonly breadth?: number;
  readonly keep?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly propose?: string;
  readonly judge?: string;
  readonly answer?: string;
  readonly script?: readonly string[];
  readonly model?: string;
}

/** A partial solution: the thoughts so far, the value of its last verdict, and its index among the solutions of its step. */
interface Solution {
  readonly thoughts: readonly string[];
  readonly value: number;
  readonly index: number;
}

/** Value of each verdict of the model on a state (the paper's weights for the Game of 24). */
const VALUES: Readonly<Record<string, number>> = { sure: 20, likely: 1, impossible: 0.001 };
const VERDICT = regex(/ (sure|likely|impossible)\n/);

/** Breadth-first search over thoughts: each step proposes states, values them and continues the best. Shared prefixes are computed once. */
export const app = program('tree-of-thought', (session, input: Input) => {
  const { steps = 3, breadth = 3, keep = 2, maxTokens = 32, temperature = 0.8, seed, script, model } = input;
  const { propose = 'Step:', judge = 'Can this be solved (sure, likely, impossible)?', answer = 'Answer:' } = input;
  let drawnSeeds = 0;
  const picks = scripts(
    script?.map((reply) => ` ${reply}\n`),
    () => sampler({ temperature, seed: seed === undefined ? seed : (seed + drawnSeeds++) >>> 0 }),
  );
  /** Lets the model write one line after a label. The line stays in the state. */
  const write = (state: State, label: string): Variable => {
    const line = gen({ sampler: picks(), maxTokens, stop: '\n' });
    state.add`${label}${line}\n`;
    return line;
  };
  /** Asks for the model's verdict on a state, in a fork, so that the verdict does not become part of the state. */
  const judged = (state: State): Variable => {
    const verdict = gen({ sampler: picks(), constraint: VERDICT });
    state.fork().add`${judge}${verdict}`;
    return verdict;
  };
  /** For each step, its thoughts and then the verdicts on them. They determine the course of the search. */
  const said: Variable[] = [];
  const search = { breadth, keep };
  let states = [session.state({ model }).add`${session.argument('problem')}\n`];
  for (let step = 1; step <= steps; step++) {
    const next = states.flatMap((state) => Array.from({ length: breadth }, () => state.fork()));
    said.push(...next.map((state) => write(state, propose)));
    said.push(...next.map(judged));
    // Only the best state of the last step continues.
    const kept = step === steps ? 1 : Math.min(keep, next.length);
    states = session.pick('ranking', next, kept, said, async (texts) => {
      const ranked = solutionsOf(texts, search);
      for (const { thoughts, value } of ranked) await sendJson({ step, thoughts, value });
      return ranked.map(({ index }) => index);
    });
  }
  const written = write(states[0] as State, answer);
  const best = (texts: readonly string[]) => solutionsOf(texts, search)[0];
  return {
    answer: session.call('answer', [written], 'text', ([text = '']) => text.trim()),
    thoughts: session.call('thoughts', said, 'texts', (texts) => best(texts)?.thoughts ?? []),
    value: session.call('value', said, 'json', (texts) => best(texts)?.value ?? 0),
  };
});

/** Replays the search from `said`. Returns the solutions of the last complete step, the best first. */
function solutionsOf(
  said: readonly string[],
  { breadth, keep }: { readonly breadth: number; readonly keep: number },
): Solution[] {
  let ranked: Solution[] = [{ thoughts: [], value: 0, index: 0 }];
  for (let start = 0; start < said.length; ) {
    const kept = start === 0 ? ranked : ranked.slice(0, keep);
    const parents = kept.flatMap((solution) => Array<Solution>(breadth).fill(solution));
    const next = parents.map(({ thoughts }, index): Solution => {
      const [thought = '', verdict = ''] = [said[start + index], said[start + parents.length + index]];
      return { thoughts: [...thoughts, thought.trim()], value: VALUES[verdict.trim()] ?? 0, index };
    });
    ranked = next.sort((a, b) => b.value - a.value);
    start += 2 * parents.length;
  }
  return ranked;
}

/** Operations that run at once: enough for all thoughts of a step, since pie.json allows 16 thoughts for each of 16 states. */
const CONCURRENCY = 256;

export const run = defineInferlet(({ interpret = false, ...input }: Input & { readonly interpret?: boolean }) =>
  app.run(input, { interpret, concurrency: CONCURRENCY }),
);
