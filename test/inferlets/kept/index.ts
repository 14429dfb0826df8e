/** Stores data that outlives an invocation, and reads it; for the test of backups. */
import { defineInferlet, environment, KvFile, store, tokenize, VectorIndex } from '@pie/inferlet';

const NAME = 'kept';
const NOTES = { near: [1, 0, 0.1], far: [0, 1, 0.1] };

export const run = defineInferlet(async ({ act, text = '' }: { act: 'keep' | 'read'; text?: string }) => {
  if (act === 'keep') {
    using file = await KvFile.create();
    await file.predict(tokenize(text), { topK: 1 });
    await file.save(NAME, { persistent: true });
    await store.set(NAME, text);
    const notes = await VectorIndex.open(NAME, { dimensions: 3 });
    await notes.upsert(Object.entries(NOTES).map(([id, vector]) => ({ id, vector, text: id })));
  }
  using file = await KvFile.open(NAME);
  const [row] = await file.predict(tokenize(' and'), { topK: 3 });
  const [nearest] = await new VectorIndex(NAME).query({ vector: NOTES.near, limit: 1 });
  return {
    tokens: file.length,
    next: row && { tokens: Array.from(row.tokens), logProbabilities: Array.from(row.logProbabilities) },
    stored: await store.getText(NAME),
    nearest: nearest?.id,
    secret: environment.require('TOKEN'),
  };
});
