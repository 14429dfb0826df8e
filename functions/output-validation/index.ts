import { Context, defineInferlet, InferletError, sampler, scripts } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly pattern: string;
  readonly attempts?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly script?: readonly string[];
  readonly model?: string;
}

/** Generates until the text is valid. Each attempt starts from a snapshot of the computed prompt. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, attempts = 5, maxTokens = 32, temperature = 1, seed = 1, model } = input;
  const pattern = patternOf(input.pattern);
  const rejected: string[] = [];
  const next = scripts(input.script, () => sampler({ temperature, seed: (seed + rejected.length) >>> 0 }));

  using ctx = new Context({ model });
  using prompted = await ctx.fill(prompt, { field: 'prompt' }).snapshot();
  while (rejected.length < attempts) {
    const { text } = await ctx.restore(prompted).generate({ sampler: next(), maxTokens }).collect();
    if (pattern.test(text)) return { valid: true, text, rejected };
    rejected.push(text);
  }
  return { valid: false, text: rejected.at(-1), rejected };
});

function patternOf(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    throw new InferletError('invalid-argument', `"pattern" is not a regular expression: ${(cause as Error).message}.`);
  }
}
