import { Context, defineInferlet, InferletError, jsonSchema, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly schema: object;
  readonly prompt?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a prompt with JSON that fits a schema. */
export const run = defineInferlet(async (input: Input): Promise<{ value: unknown; tokens: number }> => {
  const { schema, prompt = '', maxTokens = 256, temperature, seed, model } = input;
  using ctx = new Context({ model });
  const generation = ctx.fill(prompt, { field: 'prompt' }).generate({
    constraint: jsonSchema(schema),
    sampler: sampler({ temperature, seed }),
    maxTokens,
  });
  const { text, tokens, finishReason } = await generation.collect();
  if (finishReason === 'max-tokens' || finishReason === 'context-length') {
    const fault = `The JSON is incomplete after ${tokens.length} tokens (${finishReason})`;
    throw new InferletError('limit-exceeded', `${fault}: raise maxTokens, or shorten the prompt.`);
  }
  return { value: JSON.parse(text), tokens: tokens.length };
});
