import { Context, defineInferlet, regex, type Sampler, sampler, scripts, sendJson } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly task: string;
  readonly parts: readonly string[];
  readonly branches?: number;
  readonly refinements?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly judge?: string;
  readonly script?: readonly string[];
  readonly model?: string;
}

interface Thought {
  readonly text: string;
  readonly score: number;
}

const SCORE = regex(/ ([0-9]|10)\n/);

/** A graph of promises: thoughts on each part, merged in pairs, then refined. An operation starts as soon as its inputs are ready. */
export const run = defineInferlet(async (input: Input) => {
  const { task, parts, branches = 3, refinements = 1, maxTokens = 48, temperature = 0.8, seed, model } = input;
  const { judge = 'Score from 0 to 10:' } = input;
  let drawnSeeds = 0;
  const seeded = () => sampler({ temperature, seed: seed === undefined ? seed : (seed + drawnSeeds++) >>> 0 });
  const pick = scripts(
    input.script?.map((reply) => ` ${reply}\n`),
    seeded,
  );
  using shared = new Context({ model });
  shared.fill(`${task}\n`);

  /** Generates thoughts, scores them and keeps the best. Takes its samplers at once, so that operations use up a script in the graph's order. */
  async function operation(kind: string, sources: readonly Promise<Thought>[], text = ''): Promise<Thought> {
    const picks = Array.from({ length: branches }, () => ({ thought: pick(), score: pick() }));
    const given = sources.length > 0 ? (await Promise.all(sources)).map((source) => source.text).join(' | ') : text;
    using ctx = await shared.fork();
    ctx.fill(`${kind}: ${given}\nResult:`);
    const thoughts = await Promise.all(picks.map((samplers) => think(ctx, samplers)));
    await sendJson({ kind, given, thoughts });
    return best(thoughts);
  }

  async function think(ctx: Context, picks: { thought: Sampler; score: Sampler }): Promise<Thought> {
    using fork = await ctx.fork();
    const said = await fork.generate({ sampler: picks.thought, maxTokens, stop: '\n' }).collect();
    const score = await fork.fill(`\n${judge}`).generate({ sampler: picks.score, constraint: SCORE }).collect();
    const text = said.text.trim();
    return { text, score: text === '' ? 0 : Number(score.text) };
  }

  const unmerged = parts.map((part) => operation('Part', [], part));
  while (unmerged.length > 1) {
    const pair = unmerged.splice(0, 2);
    unmerged.push(operation('Merge', pair));
  }
  let [result] = unmerged as [Promise<Thought>];
  for (let i = 0; i < refinements; i++) result = Promise.all([result, operation('Improve', [result])]).then(best);
  return await result;
});

const best = (thoughts: readonly Thought[]): Thought => thoughts.reduce((a, b) => (b.score > a.score ? b : a));
