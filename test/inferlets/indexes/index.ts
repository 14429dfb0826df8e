/** Makes indexes of one entry, whose text is "cat" and the index's name, and lists all indexes of the tenant. */
import { defineInferlet, VectorIndex } from '@pie/inferlet';

export const run = defineInferlet(
  async ({ make = [], dimensions = 32 }: { make?: readonly string[]; dimensions?: number }) => {
    for (const name of make) {
      const index = await VectorIndex.open(name, { dimensions });
      await index.upsert([{ id: 'a', vector: new Float32Array(dimensions).fill(1), text: `cat ${name}` }]);
    }
    return { names: (await VectorIndex.list()).map(({ name }) => name) };
  },
);
