import { Context, defineInferlet, regex, type Sampler, sampler, scripts, sendJson } from '@pie/inferlet';

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

/** A partial solution: the context holds the problem and the thoughts so far. */
interface State {
  readonly ctx: Context;
  readonly thoughts: readonly string[];
  readonly value: number;
}

/** Value of each verdict of the model on a state (the paper's weights for the Game of 24). */
const VALUES: Readonly<Record<string, number>> = { sure: 20, likely: 1, impossible: 0.001 };
const VERDICT = regex(/ (sure|likely|impossible)\n/);

/** Breadth-first search over thoughts: each step proposes states, values them and keeps the best. Shared prefixes are computed once. */
export const run = defineInferlet(async (input: Input) => {
  const { problem, steps = 3, breadth = 3, keep = 2, maxTokens = 32, temperature = 0.8, seed, model } = input;
  const { propose = 'Step:', judge = 'Can this be solved (sure, likely, impossible)?', answer = 'Answer:' } = input;
  let drawn = 0;
  const seeded = () => sampler({ temperature, seed: seed === undefined ? seed : (seed + drawn++) >>> 0 });
  const pick = scripts(
    input.script?.map((reply) => ` ${reply}\n`),
    seeded,
  );

  async function think({ ctx, thoughts }: State, picks: Sampler): Promise<State> {
    const branch = await ctx.fork();
    return { ctx: branch, thoughts: [...thoughts, await line(branch, propose, picks, maxTokens)], value: 0 };
  }

  async function valued(state: State, picks: Sampler): Promise<State> {
    using fork = await state.ctx.fork();
    const verdict = await fork.fill(judge).generate({ sampler: picks, constraint: VERDICT }).collect();
    return { ...state, value: VALUES[verdict.text.trim()] ?? 0 };
  }

  const root = new Context({ model });
  let states: State[] = [{ ctx: root.fill(`${problem}\n`), thoughts: [], value: 0 }];
  for (let step = 1; step <= steps; step++) {
    const proposals = states.flatMap((state) => Array<State>(breadth).fill(state));
    const next = await Promise.all(proposals.map((state) => think(state, pick())));
    const ranked = (await Promise.all(next.map((state) => valued(state, pick())))).sort((a, b) => b.value - a.value);
    for (const { thoughts, value } of ranked) await sendJson({ step, thoughts, value });
    for (const { ctx } of [...states, ...ranked.slice(keep)]) ctx.release();
    states = ranked.slice(0, keep);
  }
  const [best] = states as [State];
  return { answer: await line(best.ctx, answer, pick(), maxTokens), thoughts: best.thoughts, value: best.value };
});

/** Lets the model write one line after a label. The line stays in the context. */
async function line(ctx: Context, label: string, picks: Sampler, maxTokens: number): Promise<string> {
  const { text } = await ctx.fill(label).generate({ sampler: picks, maxTokens, stop: '\n' }).collect();
  ctx.fill('\n');
  return text.trim();
}
