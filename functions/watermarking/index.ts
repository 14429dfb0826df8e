import { Context, defineInferlet, type Processor, processors, tokenize, uniform } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt?: string;
  readonly text?: string;
  readonly key?: number;
  readonly gamma?: number;
  readonly delta?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Writes a text with a watermark in its choice of tokens or, given a `text`, measures the watermark in that text. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt = '', key = 15485863, gamma = 0.25, delta = 3, maxTokens = 200, temperature = 1, seed, model } = input;
  /** After the token `last`, the key makes a fraction `gamma` of the vocabulary green. True when `token` is one of these green tokens. */
  const isGreen = (last: number, token: number): boolean => uniform(key ^ last, token) < gamma;

  /** Counts the different pairs of successive tokens, and those with a green second token. `zScore`: `green` above chance, in standard deviations. */
  function detect(tokens: readonly number[]): { zScore: number; green: number; pairs: number } {
    const pairs = new Map(tokens.slice(1).map((token, i) => [`${tokens[i]} ${token}`, isGreen(tokens[i] ?? 0, token)]));
    const green = [...pairs.values()].filter(Boolean).length;
    const zScore = (green - gamma * pairs.size) / Math.sqrt(Math.max(1, pairs.size) * gamma * (1 - gamma));
    return { zScore, green, pairs: pairs.size };
  }
  if (input.text !== undefined) return detect(tokenize(input.text, { model }));

  const mark: Processor = ({ tokens, logProbabilities }, { tokens: before }) => {
    const last = before.at(-1) ?? 0;
    for (const [i, value] of logProbabilities.entries()) {
      if (isGreen(last, tokens[i] ?? 0)) logProbabilities[i] = value + delta;
    }
  };
  using ctx = new Context({ model });
  const sampler = processors([mark], { temperature, seed });
  const { text, tokens } = await ctx
    .fill(prompt, { field: 'prompt' })
    .generate({ sampler, maxTokens, ignoreEos: true })
    .collect();
  return { text, ...detect(tokens) };
});
