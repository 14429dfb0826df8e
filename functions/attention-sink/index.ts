import { attentionSink, Context, defineInferlet, script, specialTokens, tokenize } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly text: string;
  readonly sink?: number;
  readonly window?: number;
  readonly maxTokens?: number;
  readonly model?: string;
}

/** Reads a text of any length while attending only to its first and last tokens, then continues it. */
export const run = defineInferlet(async ({ text, sink = 4, window: size = 96, maxTokens = 0, model }: Input) => {
  using ctx = new Context({ model });
  const window = attentionSink({ sink, window: size });
  const tokens = tokenize(text, { model });
  // Without a begin-of-text token, the model cannot predict the first token.
  const unpredicted = specialTokens(model).bos === null ? 1 : 0;
  ctx.fill(tokens.slice(0, unpredicted), { field: 'text' });
  const predicted = tokens.slice(unpredicted);
  const reading = {
    window,
    sampler: script(predicted),
    maxTokens: predicted.length,
    logProbabilities: true,
    ignoreEos: true,
  };
  const { logProbabilities = [] } = await ctx.generate(reading).collect();
  const perplexity = Math.exp(-logProbabilities.reduce((sum, value) => sum + value, 0) / Math.max(1, predicted.length));
  const written = await ctx.generate({ window, maxTokens, ignoreEos: true }).collect();
  return { perplexity, tokens: tokens.length, held: ctx.tokens, text: written.text, written: written.tokens };
});
