import { Context, defineInferlet, InferletError, map, scripts, sendJson } from '@pie/inferlet';
import { partsOf } from './parts.ts';

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
  for (let parts = partsOf(text, chunkTokens, model); ; parts = partsOf(parts.join(' '), chunkTokens, model)) {
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
