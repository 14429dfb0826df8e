import { Context, defineInferlet, type IndexMatch, InferletError, scripts, VectorIndex } from '@pie/inferlet';
import { embedder } from './embed.ts';

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
    const index = new VectorIndex(`rag-${name}`);
    if (passages) {
      const vectors = await embed(passages);
      await index.drop();
      const [first] = vectors;
      if (first) {
        await VectorIndex.open(index.name, { dimensions: first.length });
        await index.upsert(passages.map((text, i) => ({ id: `${i}`, vector: vectors[i] ?? [], text })));
      }
    }
    if (question === undefined) return { indexed: passages?.length ?? 0 };
    const [vector] = await embed([question]);
    const found = await find(index, { vector, text: question, limit: topK }, name);
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

async function find(
  index: VectorIndex,
  query: Parameters<VectorIndex['query']>[0],
  name: string,
): Promise<IndexMatch[]> {
  try {
    return await index.query(query);
  } catch (error) {
    if (InferletError.from(error).code !== 'not-found') throw error;
    throw new InferletError('not-found', `The index "${name}" is empty: give it passages first.`);
  }
}
