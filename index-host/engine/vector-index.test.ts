import assert from 'node:assert/strict';
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import { type Entry, IndexError } from '../protocol/types.ts';
import { temporaryFolder } from '../testing/folder.ts';
import { type Pieces, WORDED_AT_ONCE } from './sizes.ts';
import { VectorIndex } from './vector-index.ts';

/**
 * Sizes that are small enough for the entries of these tests. A query compares the newest 100 entries one by one, and
 * finds older ones through the graph. A query by words ranks at most 6 entries. `Sizes` explains all four numbers.
 */
const SIZES = { tail: 100, maxCompared: 50, width: 400, maxWorded: 6 };
const ROOM = () => ({ entries: 1e9, bytes: 1e12 });

function finish<T>(pieces: Pieces<T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done) return value as T;
  }
}

const entry = (id: string, vector: readonly number[], text: string | null = null): Entry => ({
  id,
  text,
  vector: Float32Array.from(vector),
  metadata: [],
});

test('queries through the graph find nine of ten nearest neighbours, also after a restart', async () => {
  using folder = temporaryFolder();
  const random = randomFrom(7);
  const dimensions = 16;
  const vectors = Array.from({ length: 3000 }, () => randomVector(dimensions, random));
  let index = VectorIndex.create(folder.path, { name: 'one', dimensions, metric: 'euclidean' }, SIZES);
  for (let at = 0; at < vectors.length; at += 250) {
    const batch = vectors.slice(at, at + 250).map((vector, i) => ({ ...entry(String(at + i), []), vector }));
    finish(index.upsert(batch, ROOM));
  }
  const recall = () => {
    let hits = 0;
    for (let query = 0; query < 50; query++) {
      const vector = randomVector(dimensions, randomFrom(1000 + query));
      const distances = vectors.map((own, i) => [own.reduce((sum, v, k) => sum + (v - vector[k]!) ** 2, 0), i]);
      const nearest = new Set(
        distances
          .sort((a, b) => a[0]! - b[0]!)
          .slice(0, 10)
          .map(([, i]) => String(i)),
      );
      const found = finish(index.query({ vector, text: null, filter: [], limit: 10 }));
      hits += found.filter(({ id }) => nearest.has(id)).length;
    }
    return hits / 500;
  };
  assert.ok(recall() >= 0.9, `${recall()}`);
  await index.save();
  index.close();
  index = finish(VectorIndex.open(folder.path, SIZES))!;
  assert.ok(recall() >= 0.9, `${recall()} after a restart`);
  index.close();
});

test('cosine queries find the neighbours of vectors of any length, although the graph rounds values', () => {
  for (const scale of [1e-18, 1e-6, 1, 1e6, 1e18]) {
    using folder = temporaryFolder();
    const random = randomFrom(3);
    const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 8, metric: 'cosine' }, SIZES);
    const vectors = Array.from({ length: 1000 }, () => randomVector(8, random).map((value) => value * scale));
    finish(
      index.upsert(
        vectors.map((vector, i) => ({ ...entry(String(i), []), vector })),
        ROOM,
      ),
    );
    const found = vectors
      .slice(0, 100)
      .map((vector) => finish(index.query({ vector, text: null, filter: [], limit: 1 })));
    const hits = found.filter(([best], i) => best?.id === String(i)).length;
    assert.ok(hits >= 98, `${hits} of 100 for the scale ${scale}`);
    index.close();
  }
});

test('queries by dot product and distance find the neighbours of vectors of any length, also after a restart', async () => {
  const [dimensions, count] = [8, 400];
  for (const metric of ['dot-product', 'euclidean'] as const) {
    // The scale of the first 20 vectors, and that of the others.
    for (const [firstScale, scale] of [
      [1e-9, 1e-9],
      [1e-5, 1e-5],
      [3000, 3000],
      [1e-9, 3000],
    ] as const) {
      using folder = temporaryFolder();
      const random = randomFrom(4);
      const vectors = Array.from({ length: count }, (_, i) =>
        randomVector(dimensions, random).map((value) => value * (i < 20 ? firstScale : scale)),
      );
      const nearness = (one: Float32Array, other: Float32Array) =>
        one.reduce((sum, value, i) => {
          const own = other[i] ?? 0;
          return sum + (metric === 'euclidean' ? -((value - own) ** 2) : value * own);
        }, 0);
      const recall = (index: VectorIndex) => {
        let hits = 0;
        for (let query = 0; query < 10; query++) {
          // The length of a query's vector does not change a ranking by dot product. For a ranking by distance, the query must be about as long as
          // the entries' vectors: from far away, all entries are almost equally distant.
          const queryScale = metric === 'euclidean' ? scale : 1;
          const vector = randomVector(dimensions, randomFrom(query)).map((value) => value * queryScale);
          const nearest = vectors
            .map((own, i) => ({ id: `${i}`, score: nearness(vector, own) }))
            .sort((a, b) => b.score - a.score)
            .slice(0, 5);
          const ids = finish(index.query({ vector, text: null, filter: [], limit: 5 })).map(({ id }) => id);
          hits += nearest.filter(({ id }) => ids.includes(id)).length;
        }
        return hits / 50;
      };
      const name = `${metric}, ${firstScale} and ${scale}`;
      const index = VectorIndex.create(folder.path, { name: 'one', dimensions, metric }, SIZES);
      for (let at = 0; at < count; at += 100) {
        const entries = vectors.slice(at, at + 100).map((vector, i) => ({ ...entry(`${at + i}`, []), vector }));
        finish(index.upsert(entries, ROOM));
      }
      assert.ok(recall(index) > 0.9, name);
      if (index.needsRebuild) finish(index.rebuild());
      assert.equal(index.needsRebuild, false, name);
      assert.ok(recall(index) > 0.9, name);
      await index.save();
      index.close();
      const opened = finish(VectorIndex.open(folder.path, SIZES));
      assert.ok(opened && opened.tailSize <= SIZES.tail && !opened.needsRebuild, name);
      assert.ok(recall(opened) > 0.9, name);
      opened.close();
    }
  }
});

test('a query by vector and text joins both rankings, and operators in its text have no effect', () => {
  using folder = temporaryFolder();
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' });
  const entries = [
    entry('north', [0, 1], 'The compass points north'),
    entry('east', [1, 0], 'The sun rises in the east'),
    entry('north-east', [1, 1.1], 'A wind from the sea'),
    entry('silent', [0.1, 1]),
  ];
  finish(index.upsert(entries, ROOM));
  const ids = (vector: readonly number[] | null, text: string | null, limit = 4) =>
    finish(index.query({ vector: vector && Float32Array.from(vector), text, filter: [], limit })).map(({ id }) => id);
  assert.deepEqual(ids([0, 1], null), ['north', 'silent', 'north-east', 'east']);
  assert.deepEqual(ids(null, 'SUN OR "compass"* NEAR(x'), ['north', 'east']);
  // `north` is second by its vector and first by its text. `silent` is first by its vector and has no text.
  assert.deepEqual(ids([0.1, 1], 'which compass points north', 2), ['north', 'silent']);
  assert.deepEqual(ids(null, '!?'), []);
  const [best] = finish(index.query({ vector: Float32Array.of(1, 0), text: null, filter: [], limit: 1 }));
  assert.deepEqual(
    { ...best, score: Math.fround(best!.score) },
    { id: 'east', score: 1, text: 'The sun rises in the east', metadata: [] },
  );
  index.close();
});

test('a query uses its rare words; a query whose only word is in most entries finds the newest ones', () => {
  using folder = temporaryFolder();
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' }, SIZES);
  const entries = Array.from({ length: 20 }, (_, i) =>
    entry(`e${i}`, [1, i], `the ${i % 5 === 0 ? 'fox' : 'sea'} ${i}`),
  );
  finish(index.upsert(entries, ROOM));
  const ids = (text: string) =>
    finish(index.query({ vector: null, text, filter: [], limit: 9 }))
      .map(({ id }) => id)
      .sort();
  // The word `fox` is in 4 entries, `7` in one, and `the` in all 20, which are more than `maxWorded`.
  assert.deepEqual(ids('the fox'), ['e0', 'e10', 'e15', 'e5']);
  assert.deepEqual(ids('the fox 7 unknown'), ['e0', 'e10', 'e15', 'e5', 'e7']);
  assert.deepEqual(ids('The'), ['e14', 'e15', 'e16', 'e17', 'e18', 'e19']);
  index.close();
});

test('texts are stored, ranked and deleted in pieces, between which other calls write', () => {
  using folder = temporaryFolder();
  const sizes = { ...SIZES, maxWorded: 1000 };
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' }, sizes);
  const text = (i: number) => `fox ${'den '.repeat(i % 50)}${i}`.padEnd(4000, ' x');
  const entries = Array.from({ length: 200 }, (_, i) => entry(`e${i}`, [1, i], text(i)));
  const piecesOf = <T>(work: Pieces<T>, between: (piece: number) => void): { pieces: number; value: T } => {
    for (let pieces = 1; ; pieces++) {
      const { done, value } = work.next();
      if (done) return { pieces, value: value as T };
      between(pieces);
    }
  };
  const stored = piecesOf(index.upsert(entries, ROOM), () => assert.equal(index.stats.entries, 200));
  assert.ok(stored.pieces >= 10, `${stored.pieces} pieces`);
  const query = { vector: null, text: 'fox', filter: [], limit: 250 };
  const expected = finish(index.query(query)).map(({ id }) => id);
  assert.equal(expected.length, 200);
  const noRoom = () => ({ entries: 0, bytes: 0 });
  const ranked = piecesOf(index.query(query), (piece) => {
    finish(index.upsert([entry(`later${piece}`, [1, 1], text(piece))], ROOM));
    assert.throws(() => finish(index.upsert([entry('e0', [0, 1])], noRoom)), IndexError);
    if (piece < 9) finish(index.delete([`e${piece}`]));
  });
  const best = piecesOf(index.query({ ...query, limit: 1 }), () => undefined);
  assert.ok(best.pieces >= 200 / WORDED_AT_ONCE, `${best.pieces} pieces`);
  const found = new Set(ranked.value.map(({ id }) => id));
  for (const id of expected) assert.equal(found.has(id), !/^e[1-8]$/.test(id), id);
  const ids = Array.from({ length: 200 }, (_, i) => `e${i}`);
  const countBefore = index.stats.entries;
  const deleted = piecesOf(index.delete(['unknown', ...ids]), () => finish(index.query({ ...query, limit: 1 })));
  assert.ok(deleted.pieces >= 5, `${deleted.pieces} pieces`);
  assert.equal(index.stats.entries, countBefore - deleted.value);
  assert.ok(finish(index.query(query)).every(({ id }) => id.startsWith('later')));
  index.close();
});

test('while queries by text overlap, the log of writes stays short, and each query finds every entry once', () => {
  using folder = temporaryFolder();
  const count = 2000;
  const index = VectorIndex.create(
    folder.path,
    { name: 'one', dimensions: 2, metric: 'cosine' },
    { ...SIZES, maxWorded: count },
  );
  const old = Array.from({ length: count }, (_, i) => entry(`e${i}`, [1, i], `fox ${i}`));
  finish(index.upsert(old, ROOM));
  const rewritten = Array.from({ length: 14 }, (_, i) => entry(`r${i}`, [1, i], 'den '.repeat(16_000)));
  const log = path.join(folder.path, 'records.db-wal');
  let longest = 0;
  const write = () => {
    finish(index.upsert(rewritten, ROOM));
    longest = Math.max(longest, statSync(log).size);
  };
  const begin = () => index.query({ vector: null, text: 'fox', filter: [], limit: count });
  let older = begin();
  for (let steps = 0; steps < 40; steps++) older.next();
  for (let round = 0; round < 6; round++) {
    // The next query reads before the older one has ended.
    const newer = begin();
    for (let steps = 0; steps < 40; steps++) {
      newer.next();
      if (steps % 4 === 0) write();
    }
    assert.equal(new Set(finish(older).map(({ id }) => id)).size, count);
    older = newer;
  }
  older.return([]);
  assert.ok(longest < 32 * 2 ** 20, `a log of ${longest} bytes`);
  index.close();
});

test('words that an interrupted write left unindexed are indexed later, also after a restart', () => {
  using folder = temporaryFolder();
  let index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' });
  const texts = (word: string) =>
    Array.from({ length: 60 }, (_, i) => entry(`e${i}`, [1, i], `${word} ${i} `.padEnd(4000, 'x ')));
  const cutOff = (work: Pieces<unknown>, pieces: number) => {
    for (let i = 0; i < pieces; i++) assert.equal(work.next().done, false);
    work.return(undefined);
    assert.ok(index.hasExcess);
  };
  const found = (word: string) => finish(index.query({ vector: null, text: word, filter: [], limit: 100 })).length;
  const reopened = () => {
    index.close();
    index = finish(VectorIndex.open(folder.path))!;
    assert.ok(index.hasExcess);
    finish(index.absorbExcess());
    assert.ok(!index.hasExcess);
  };
  cutOff(index.upsert(texts('fox'), ROOM), 2);
  assert.equal(index.stats.entries, 60);
  reopened();
  assert.equal(found('fox'), 60);
  // The second write replaces texts whose words are not indexed yet.
  cutOff(index.upsert(texts('sea'), ROOM), 1);
  cutOff(index.upsert(texts('den'), ROOM), 3);
  assert.deepEqual([found('fox'), found('sea')], [0, 0]);
  reopened();
  assert.deepEqual([found('fox'), found('sea'), found('den')], [0, 0, 60]);
  cutOff(index.delete(['e0', 'e1']), 1);
  reopened();
  assert.equal(found('den'), 58);
  index.close();
  // The table of words, read without the index, has no word of a replaced or deleted text.
  using db = new DatabaseSync(path.join(folder.path, 'records.db'));
  const counts = ['fox', 'sea', 'den'].map((word) =>
    Number(db.prepare('SELECT count(*) AS count FROM words WHERE words MATCH ?').get(word)?.count),
  );
  assert.deepEqual(counts, [0, 0, 58]);
});

test('a write that exceeds the room changes nothing', () => {
  using folder = temporaryFolder();
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' });
  finish(index.upsert([entry('a', [1, 0], 'first')], ROOM));
  const before = index.stats;
  const twoEntries = [entry('a', [0, 1], 'second'), entry('b', [1, 1], 'third')];
  const refused = (error: unknown) => error instanceof IndexError && error.code === 'limit-exceeded';
  assert.throws(() => finish(index.upsert(twoEntries, () => ({ entries: 1, bytes: 1e9 }))), refused);
  assert.throws(() => finish(index.upsert(twoEntries, () => ({ entries: 9, bytes: before.bytes + 10 }))), refused);
  assert.deepEqual(index.stats, before);
  const found = finish(index.query({ vector: Float32Array.of(1, 0), text: 'second third', filter: [], limit: 9 }));
  assert.deepEqual(
    found.map(({ id, text }) => [id, text]),
    [['a', 'first']],
  );
  index.close();
});

test('an index counts the bytes of its present entries, whatever was written and deleted before', () => {
  using folder = temporaryFolder();
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' });
  finish(index.upsert([entry('a', [1, 0], 'text')], ROOM));
  const bytesOfOne = index.stats.bytes;
  finish(index.upsert([entry('a', [0, 1], 'other, longer text'), entry('b', [1, 1])], ROOM));
  finish(index.upsert([entry('a', [1, 0], 'text')], ROOM));
  finish(index.delete(['b', 'unknown']));
  assert.deepEqual([index.stats.entries, index.stats.bytes], [1, bytesOfOne]);
  finish(index.delete(['a']));
  assert.deepEqual([index.stats.entries, index.stats.bytes], [0, 0]);
  index.close();
});

test('the file gets shorter when most of its entries are deleted, also by a call that ended early', () => {
  using folder = temporaryFolder();
  const dimensions = 4096;
  const sizes = { ...SIZES, tail: 1000 };
  const shape = { name: 'one', dimensions, metric: 'cosine' } as const;
  const random = randomFrom(5);
  const entries = Array.from({ length: 640 }, (_, i) => ({
    ...entry(String(i), []),
    vector: randomVector(dimensions, random),
  }));
  const index = VectorIndex.create(folder.path, shape, sizes);
  finish(index.upsert(entries, ROOM));
  const { bytes } = index.stats;
  const deleting = index.delete(entries.map(({ id }) => id).slice(1));
  while (index.stats.entries > 1) assert.equal(deleting.next().done, false);
  deleting.return(0);
  assert.ok(index.hasExcess);
  finish(index.absorbExcess());
  assert.ok(!index.hasExcess);
  const query = { vector: entries[0]!.vector, text: null, filter: [], limit: 9 };
  assert.deepEqual(
    finish(index.query(query)).map(({ id }) => id),
    ['0'],
  );
  index.close();
  assert.ok(!index.hasExcess);
  const { size } = statSync(path.join(folder.path, 'records.db'));
  assert.ok(size < bytes / 2, `${size} bytes for a file that had more than ${bytes}`);
});

test('an index whose entries are all deleted deletes the file of its graph, and needs no second save', async () => {
  using folder = temporaryFolder();
  let index = VectorIndex.create(folder.path, { name: 'one', dimensions: 2, metric: 'cosine' }, SIZES);
  const graphs = () => readdirSync(folder.path).filter((file) => file.startsWith('graph-'));
  const entries = Array.from({ length: 1300 }, (_, i) => entry(String(i), [1, i]));
  finish(index.upsert(entries, ROOM));
  await index.save();
  assert.equal(graphs().length, 1);
  finish(index.delete(entries.map(({ id }) => id)));
  assert.ok(index.needsRebuild);
  finish(index.rebuild());
  assert.ok(index.needsSave);
  await index.save();
  assert.deepEqual([graphs(), index.needsSave, index.needsRebuild], [[], false, false]);
  finish(index.upsert([entry('new', [1, 0])], ROOM));
  index.close();
  index = finish(VectorIndex.open(folder.path, SIZES))!;
  // The empty graph has no file. The index must not mistake it for a lost graph, and make it again.
  assert.deepEqual([index.needsRebuild, index.tailSize], [false, 1]);
  const found = finish(index.query({ vector: Float32Array.of(1, 0), text: null, filter: [], limit: 9 }));
  assert.deepEqual(
    found.map(({ id }) => id),
    ['new'],
  );
  index.close();
});

test('entries of the tail that are near each other and far from zero get exact squared distances', () => {
  using folder = temporaryFolder();
  const dimensions = 64;
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions, metric: 'euclidean' }, SIZES);
  /** The vectors differ in their first value only, by 1/64 from place to place. */
  const vectorAt = (place: number) => Array.from({ length: dimensions }, (_, i) => 60_000 + (i === 0 ? place / 64 : 0));
  const places = Array.from({ length: 20 }, (_, i) => i);
  const entries = places.map((place) => entry(String(place), vectorAt(place)));
  finish(index.upsert(entries, ROOM));
  for (const { id, vector } of entries) {
    const found = finish(index.query({ vector, text: null, filter: [], limit: 20 }));
    const distances = places.map((place) => ((place - Number(id)) / 64) ** 2).sort((a, b) => a - b);
    assert.deepEqual(
      found.map(({ score }) => score),
      distances.map((distance) => 0 - distance),
    );
    assert.equal(found[0]?.id, id);
  }
  index.close();
});

test('a query compares a long tail in several pieces, and rows that move meanwhile keep their scores', () => {
  using folder = temporaryFolder();
  const dimensions = 4096;
  const shape = { name: 'one', dimensions, metric: 'euclidean' } as const;
  const index = VectorIndex.create(folder.path, shape, { ...SIZES, tail: 1000 });
  const entryAt = (place: number) => entry(String(place), [place, ...Array(dimensions - 1).fill(0)]);
  finish(
    index.upsert(
      Array.from({ length: 512 }, (_, place) => entryAt(place)),
      ROOM,
    ),
  );
  const query = index.query({ vector: new Float32Array(dimensions), text: null, filter: [], limit: 600 });
  // The first piece compares 256 rows. The tail has memory for 512 rows, all in use. The deletions leave a gap of three rows. The next entry makes
  // the tail close this gap, so that later rows move.
  assert.equal(query.next().done, false);
  finish(index.delete(['0', '1', '2']));
  finish(index.upsert([entryAt(512)], ROOM));
  assert.deepEqual(
    finish(query).map(({ id, score }) => [id, score]),
    Array.from({ length: 510 }, (_, i) => [String(i + 3), -((i + 3) ** 2)]),
  );
  index.close();
});
