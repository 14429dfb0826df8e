import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Index } from 'usearch';
import { temporaryFolder } from '../testing/folder.ts';
import { randomFrom, randomVector } from '../testing/random.ts';
import { type Pieces, runToEnd } from './pieces.ts';
import { VectorIndex } from './vector-index.ts';

const SIZES = { tail: 10, maxCompared: 50, width: 400, maxWorded: 6 };

test('a save that fails, and a process that ends amid one, leave only the file of the last graph', async (t) => {
  using folder = temporaryFolder();
  const dimensions = 4;
  const graphs = () => readdirSync(folder.path).filter((file) => file.startsWith('graph-'));
  const random = randomFrom(1);
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions, metric: 'cosine' }, SIZES);
  const add = (name: string) => {
    const ids = Array.from({ length: 50 }, (_, i) => `${name}${i}`);
    const entries = ids.map((id) => ({ id, text: null, metadata: [], vector: randomVector(dimensions, random) }));
    return runToEnd(index.upsert(entries, () => ({ entries: 1e9, bytes: 1e12 })));
  };
  await add('a');
  await index.save();
  const first = graphs();
  assert.equal(first.length, 1);

  await add('b');
  const { mock } = t.mock.method(Index.prototype, 'save', (file: string) => {
    writeFileSync(file, 'a part');
    throw new Error('no space left on device');
  });
  await assert.rejects(index.save(), /no space/);
  assert.deepEqual(graphs(), first, 'the graph cannot be written');
  mock.restore();
  let parts = 0;
  const failSecond = async <T>(work: Pieces<T>): Promise<T> => {
    if (++parts === 2) throw new Error('no space left on device');
    return await runToEnd(work);
  };
  await assert.rejects(index.save(failSecond), /no space/);
  assert.deepEqual(graphs(), first, 'the file of the graph cannot be noted');
  await index.save();
  const [second, ...others] = graphs();
  assert.ok(second && !first.includes(second) && others.length === 0);

  index.close();
  for (const file of ['graph-999.usearch.new', 'graph-999.usearch'])
    writeFileSync(path.join(folder.path, file), 'a part');
  const opened = await runToEnd(VectorIndex.open(folder.path, SIZES));
  assert.deepEqual(graphs(), [second]);
  assert.equal(opened?.needsRebuild, false);
  opened.close();
});
