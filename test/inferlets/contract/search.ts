/** Cases of `index`. */
import { invocation, VectorIndex } from '@pie/inferlet';
import { index, settle } from '@pie/inferlet/raw';
import type { Cases } from './case.ts';

const unique = (what: string): string => `contract-${what}-${invocation().id}`;
const entry = (id: string, text?: string) => ({ id, text, fields: [] });
const vector = (...values: number[]): Float32Array => Float32Array.from(values);

/** Runs `use` on a new index of two entries, then drops the index. */
async function withIndex<T>(what: string, use: (name: string) => Promise<T>): Promise<T> {
  const name = unique(what);
  await settle(index.create(name, 2, 'cosine'));
  try {
    await settle(index.upsert(name, [entry('north', 'a cold wind'), entry('east')], vector(0, 1, 1, 0)));
    return await use(name);
  } finally {
    await settle(index.dropIndex(name));
  }
}

export const indexCases: Cases = {
  'index.create': {
    ok: () => withIndex('create', async (name) => (await settle(index.create(name, 2, 'cosine'))).entries === 2),
    fails: {
      'invalid-argument': () => settle(index.create('../outside', 2, 'cosine')),
    },
  },
  'index.upsert': {
    ok: () =>
      withIndex('upsert', async (name) => {
        await settle(index.upsert(name, [entry('east', 'the sea')], vector(-1, 0)));
        const found = await settle(index.query(name, vector(-1, 0), 'sea', [], 1));
        return found.length === 1 && found[0]?.entry.id === 'east' && found[0].entry.text === 'the sea';
      }),
    fails: {
      'not-found': () => settle(index.upsert(unique('none'), [], vector())),
      'invalid-argument': () =>
        withIndex('wrong', (name) => settle(index.upsert(name, [entry('a')], vector(1, Number.POSITIVE_INFINITY)))),
      'limit-exceeded': () => settle(index.upsert('large', [], new Float32Array((1 << 20) + 1))),
    },
  },
  'index.delete-entries': {
    ok: () =>
      withIndex('delete', async (name) => {
        const deleted = await settle(index.deleteEntries(name, ['north', 'unknown']));
        return deleted === 1 && (await settle(index.query(name, undefined, 'cold', [], 9))).length === 0;
      }),
    fails: { 'not-found': () => settle(index.deleteEntries(unique('none'), ['a'])) },
  },
  'index.query': {
    ok: async () => {
      const notes = await VectorIndex.open(unique('query'), { dimensions: 3 });
      try {
        const entries = Array.from({ length: 300 }, (_, i) => ({
          id: `e${i}`,
          vector: [Math.cos(i / 100), Math.sin(i / 100), 0.1],
          fields: { even: i % 2 === 0, number: i, name: `n${i % 3}` },
        }));
        await notes.upsert(entries);
        // The angle to this vector grows with the number of an entry, so the nearest entries have the lowest numbers.
        const nearest = { vector: [1, 0, 0.1], limit: 3 };
        const ids = async (filter: NonNullable<Parameters<VectorIndex['query']>[0]['filter']>) =>
          (await notes.query({ ...nearest, filter })).map(({ id }) => id).join();
        const [first] = await notes.query(nearest);
        return (
          first?.id === 'e0' &&
          Math.abs(first.score - 1) < 1e-6 &&
          first.fields.even === true &&
          first.fields.name === 'n0' &&
          (await ids({})) === 'e0,e1,e2' &&
          (await ids({ even: false })) === 'e1,e3,e5' &&
          (await ids({ number: { atLeast: 10, below: 12 } })) === 'e10,e11' &&
          (await ids({ name: ['n1', 'n2'], even: { not: true } })) === 'e1,e5,e7' &&
          (await notes.delete(entries.slice(0, 290).map(({ id }) => id))) === 290 &&
          (await notes.stats()).entries === 10
        );
      } finally {
        await notes.drop();
      }
    },
    fails: {
      'not-found': () => settle(index.query(unique('none'), vector(1), undefined, [], 1)),
      'invalid-argument': () => withIndex('empty', (name) => settle(index.query(name, undefined, undefined, [], 1))),
      'limit-exceeded': () => settle(index.query('large', new Float32Array(4097), undefined, [], 1)),
    },
  },
  'index.stats': {
    ok: () => withIndex('stats', async (name) => (await settle(index.stats(name))).dimensions === 2),
    fails: { 'not-found': () => settle(index.stats(unique('none'))) },
  },
  'index.list-indexes': {
    ok: () =>
      withIndex('list', async (name) => (await settle(index.listIndexes())).some((stats) => stats.name === name)),
  },
  'index.drop-index': {
    ok: async () => {
      const name = unique('drop');
      await settle(index.create(name, 2, 'cosine'));
      return (await settle(index.dropIndex(name))) && !(await settle(index.dropIndex(name)));
    },
    fails: { 'invalid-argument': () => settle(index.dropIndex('a/b')) },
  },
};
