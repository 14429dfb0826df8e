import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Index } from 'usearch';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import { temporaryFolder } from '../testing/folder.ts';
import { type Pieces, runToEnd } from './sizes.ts';
import { VectorIndex } from './vector-index.ts';

/** With so short a tail, 40 of the first 50 entries go to the graph. The other sizes concern queries, of which there are none here. */
const SIZES = { tail: 10, maxCompared: 50, width: 400, maxWorded: 6 };

test('after a save that failed, or after an index has opened, only the file of the last saved graph is left', async (t) => {
  using folder = temporaryFolder();
  const dimensions = 4;
  const graphFiles = () => readdirSync(folder.path).filter((file) => file.startsWith('graph-'));
  const random = randomFrom(1);
  const index = VectorIndex.create(folder.path, { name: 'one', dimensions, metric: 'cosine' }, SIZES);
  const add = (name: string) => {
    const ids = Array.from({ length: 50 }, (_, i) => `${name}${i}`);
    const entries = ids.map((id) => ({ id, text: null, metadata: [], vector: randomVector(dimensions, random) }));
    return runToEnd(index.upsert(entries, () => ({ entries: 1e9, bytes: 1e12 })));
  };
  await add('a');
  await index.save();
  const firstFiles = graphFiles();
  assert.equal(firstFiles.length, 1);

  await add('b');
  const { mock } = t.mock.method(Index.prototype, 'save', (file: string) => {
    writeFileSync(file, 'a part');
    throw new Error('no space left on device');
  });
  await assert.rejects(index.save(), /no space/);
  assert.deepEqual(graphFiles(), firstFiles, 'a save that cannot write the graph leaves no file of its own');
  mock.restore();
  let partCount = 0;
  // The first part of a save writes the file of the graph; the second names that file in the records.
  const failSecond = async <T>(work: Pieces<T>): Promise<T> => {
    if (++partCount === 2) throw new Error('no space left on device');
    return await runToEnd(work);
  };
  await assert.rejects(index.save(failSecond), /no space/);
  assert.deepEqual(graphFiles(), firstFiles, 'a save that cannot change the records leaves no file of its own');
  await index.save();
  const [secondFile, ...others] = graphFiles();
  assert.ok(secondFile && !firstFiles.includes(secondFile) && others.length === 0);

  index.close();
  // A process that ends amid a save leaves such files: the first before the file is renamed, the second before the records name the file.
  for (const file of ['graph-999.usearch.new', 'graph-999.usearch'])
    writeFileSync(path.join(folder.path, file), 'a part');
  const opened = await runToEnd(VectorIndex.open(folder.path, SIZES));
  assert.deepEqual(graphFiles(), [secondFile]);
  assert.equal(opened?.needsRebuild, false);
  opened.close();
});
