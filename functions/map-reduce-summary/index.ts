import { Context, defineInferlet, detokenize, InferletError, map, scripts, sendJson, tokenize } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly text: string;
  readonly chunkTokens?: number;
  readonly summaryTokens?: number;
  readonly concurrency?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

/** Summarizes the parts of a text in parallel, then the summaries, until one summary is left. */
export const run = defineInferlet(async ({ text, model, script, concurrency, ...input }: Input) => {
  const { chunkTokens = 128, summaryTokens = 48 } = input;
  if (2 * summaryTokens > chunkTokens) {
    throw new InferletError(
      'invalid-argument',
      'chunkTokens must be at least twice summaryTokens: summaries must get shorter.',
    );
  }
  const next = scripts(script);
  using instruction = new Context({ model });
  await instruction.fill('Say in short what happens in this text.\n\nText: ').flush();
  const levels: number[] = [];
  for (let parts = chunksOf(text, chunkTokens, model); ; parts = chunksOf(parts.join(' '), chunkTokens, model)) {
    if (parts.length >= (levels.at(-1) ?? Number.POSITIVE_INFINITY)) {
      const text = `${parts.length} summaries came to ${parts.length} parts again: give less to summaryTokens, or more to chunkTokens.`;
      throw new InferletError('limit-exceeded', text);
    }
    levels.push(parts.length);
    const jobs = parts.map((part) => ({ part, sampler: next() }));
    parts = await map(
      jobs,
      async ({ part, sampler }, signal) => {
        using fork = await instruction.fork();
        fork.fill(`${part}\n\nIn short:`);
        return (await fork.generate({ maxTokens: summaryTokens, sampler, signal }).collect()).text.trim();
      },
      { concurrency },
    );
    await sendJson(parts);
    if (parts.length === 1) return { summary: parts[0], levels };
  }
});

/** Cuts a text into parts of at most `most` tokens, between sentences where possible. */
function chunksOf(text: string, most: number, model?: string): string[] {
  const pieces = (text.match(/[^.!?\n]+[.!?\n]*\s*/g) ?? [text]).flatMap((sentence) => {
    const tokens = tokenize(sentence, { model });
    if (tokens.length <= most) return [{ sentence, size: tokens.length }];
    const cuts = Array.from({ length: Math.ceil(tokens.length / most) }, (_, i) =>
      tokens.slice(i * most, (i + 1) * most),
    );
    return cuts.map((cut) => ({ sentence: detokenize(cut, { model }), size: cut.length }));
  });
  const parts: { text: string; size: number }[] = [];
  for (const { sentence, size } of pieces) {
    const last = parts.at(-1);
    if (last && last.size + size <= most) Object.assign(last, { text: last.text + sentence, size: last.size + size });
    else parts.push({ text: sentence, size });
  }
  return parts.map((part) => part.text.trim());
}
