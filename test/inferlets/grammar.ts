/** Generates a text under a grammar, for the end-to-end tests of `grammar`. */
import { type Constraint, Context, defineInferlet, ebnf, json, jsonSchema, regex, sampler } from '@pie/inferlet';

interface Input {
  /** The grammar: at most one of `schema`, `regex` and `ebnf`. Without one, any JSON fits. */
  readonly schema?: object;
  readonly regex?: string;
  readonly ebnf?: string;
  readonly prompt: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
}

function constraintOf(input: Input): Constraint {
  if (input.schema !== undefined) return jsonSchema(input.schema);
  if (input.regex !== undefined) return regex(input.regex);
  if (input.ebnf !== undefined) return ebnf(input.ebnf);
  return json();
}

/** Returns the generation unchanged: text, tokens, and why it ended. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, maxTokens = 64, temperature = 1, seed } = input;
  using context = new Context();
  const generation = context
    .fill(prompt)
    .generate({ constraint: constraintOf(input), maxTokens, sampler: sampler({ temperature, seed }) });
  return await generation.collect();
});
