import { Context, defineInferlet, InferletError, map, scripts, store } from '@pie/inferlet';
import { cosine, embed } from './embed.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly index?: string;
  readonly passages?: readonly string[];
  readonly question?: string;
  readonly topK?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  readonly script?: readonly string[];
}

/** A passage and its embedding, as stored. */
interface Entry {
  readonly text: string;
  readonly vector: readonly number[];
}

/** Indexes passages by their embeddings, finds the passages nearest to a question, and answers from them. */
export const run = defineInferlet(async ({ index = 'default', passages, question, topK = 2, ...input }: Input) => {
  const { maxTokens = 96, model } = input;
  const prefix = `rag/${index}/`;
  if (passages) {
    for await (const key of store.keys(prefix)) await store.delete(key);
    await map(passages, async (text, _, i) => {
      const vector = Array.from(await embed(text, model), (value) => Number(value.toFixed(5)));
      await store.setJson(`${prefix}${String(i).padStart(6, '0')}`, { text, vector } satisfies Entry);
    });
  }
  if (question === undefined) return { indexed: passages?.length ?? 0 };
  const entries: Entry[] = [];
  for await (const key of store.keys(prefix)) {
    const entry = await store.getJson<Entry>(key);
    if (entry) entries.push(entry);
  }
  if (entries.length === 0)
    throw new InferletError('not-found', `The index "${index}" is empty: give it passages first.`);
  const asked = await embed(question, model);
  const found = entries
    .map(({ text, vector }) => ({ text, score: cosine(asked, Float32Array.from(vector)) }))
    .sort((a, b) => b.score - a.score)
    .slice(0, topK);
  using ctx = new Context({ model });
  ctx.fill(`${found.map(({ text }) => text).join('\n')}\n\nQuestion: ${question}\nAnswer:`);
  const generation = ctx.generate({ maxTokens, stop: '\n\n', sampler: scripts(input.script)() });
  await generation.pipe();
  return { answer: generation.text.trim(), found, indexed: passages?.length ?? 0 };
});
