import { Context, defineInferlet, scripts } from '@pie/inferlet';
import { embedder } from './embed.ts';
import { StoredPassages } from './stored.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly index?: string;
  readonly passages?: readonly string[];
  readonly question?: string;
  readonly topK?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly encoder?: string;
  readonly script?: readonly string[];
}

/** Indexes passages by what they mean and by their words, finds those nearest to a question, and answers from them. */
export const run = defineInferlet(
  async ({ index: name = 'default', passages, question, topK = 2, ...input }: Input) => {
    const { maxTokens = 96, model, encoder } = input;
    const embed = embedder({ model, encoder });
    const stored = new StoredPassages(name);
    if (passages) {
      const vectors = await embed(passages);
      await stored.replace(passages.map((text, i) => ({ id: `${i}`, vector: vectors[i] ?? [], text })));
    }
    if (question === undefined) return { indexed: passages?.length ?? 0 };
    const [vector] = await embed([question]);
    const found = await stored.query({ vector, text: question, limit: topK });
    using ctx = new Context({ model });
    ctx.fill(`${found.map(({ text }) => text).join('\n')}\n\nQuestion: ${question}\nAnswer:`);
    const generation = ctx.generate({ maxTokens, stop: '\n\n', sampler: scripts(input.script)() });
    await generation.pipe();
    return {
      answer: generation.text.trim(),
      found: found.map(({ text, score }) => ({ text, score })),
      indexed: passages?.length ?? 0,
    };
  },
);
