import { Context, defineInferlet, InferletError, sampler, script, sendJson } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly answer: string;
  readonly samples?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly script?: readonly string[];
  readonly model?: string;
}

/** Samples several chains of thought in parallel and returns the most frequent answer. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, samples = 8, maxTokens = 96, temperature = 0.7, seed, model } = input;
  const pattern = patternOf(input.answer);
  using shared = new Context({ model });
  shared.fill(prompt, { field: 'prompt' });

  async function reason(_: unknown, index: number): Promise<string | undefined> {
    const reply = input.script?.[index];
    const chainSeed = seed === undefined ? seed : (seed + index) >>> 0;
    using ctx = await shared.fork();
    const picks = reply === undefined ? sampler({ temperature, seed: chainSeed }) : script(reply);
    const { text } = await ctx.generate({ sampler: picks, maxTokens }).collect();
    const found = pattern.exec(text);
    const answer = (found?.[1] ?? found?.[0])?.trim();
    await sendJson({ chain: index, text, answer: answer ?? null });
    return answer;
  }
  const answers = await Promise.all(Array.from({ length: samples }, reason));
  const votes = new Map<string, number>();
  for (const answer of answers) if (answer !== undefined) votes.set(answer, (votes.get(answer) ?? 0) + 1);
  const ranked = [...votes].sort(([, a], [, b]) => b - a);
  return { answer: ranked[0]?.[0] ?? null, votes: Object.fromEntries(ranked) };
});

function patternOf(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    throw new InferletError('invalid-argument', `"answer" is not a regular expression: ${(cause as Error).message}.`);
  }
}
