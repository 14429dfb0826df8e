import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { expectedTensors, type LoadedModel, loadModel } from '../../load.ts';
import { randomModel } from '../../testing/random-model.ts';
import { importGguf } from './convert.ts';
import { partNames, readGguf } from './split.ts';
import { type Entry, type FileParts, ggufFile, modelParts, splitParts } from './testing/write.ts';

describe('a GGUF model in parts', () => {
  let directory: string;
  let model: LoadedModel;
  let whole: FileParts;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-gguf-parts-'));
    model = await randomModel(join(directory, 'original'), { hiddenSize: 64, headDim: 16, vocabularySize: 300 }, 8);
    whole = modelParts(model, 'Q8_0');
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /** Writes parts as `tiny-00001-of-00003.gguf` and so on, without those that are undefined, and returns the name of the first. */
  const write = async (parts: readonly (FileParts | undefined)[]): Promise<string> => {
    const folder = await mkdtemp(join(directory, 'parts-'));
    const names = partNames(`tiny-00001-of-0000${parts.length}.gguf`) ?? [];
    for (const [index, part] of parts.entries())
      if (part !== undefined) await writeFile(join(folder, names[index]!), ggufFile(part));
    return join(folder, names[0]!);
  };
  const changed = (part: FileParts, entry: Entry): FileParts => ({
    ...part,
    metadata: [...part.metadata.filter(([key]) => key !== entry[0]), entry],
  });

  it('has the tensors of all parts, each in its file', async () => {
    const first = await write(splitParts(whole, 3));
    const out = await mkdtemp(join(directory, 'out-'));
    await importGguf(first, out);
    const files = partNames('model-00001-of-00003.gguf')!;
    assert.deepEqual((await readdir(out)).filter((name) => name.endsWith('.gguf')).sort(), files);
    const imported = await loadModel(out);
    assert.deepEqual(imported.config, model.config);
    const single = join(directory, 'whole.gguf');
    await writeFile(single, ggufFile(whole));
    const outOfOne = await mkdtemp(join(directory, 'out-'));
    await importGguf(single, outOfOne);
    const expected = (await loadModel(outOfOne)).tensors;
    for (const [name] of expectedTensors(model.config))
      assert.deepEqual(imported.tensors.read(name), expected.read(name), name);
  });

  it('is refused when a part is missing, repeated, or of another model', async () => {
    const [a, b, c] = splitParts(whole, 3) as [FileParts, FileParts, FileParts];
    const cases: [readonly (FileParts | undefined)[], string, RegExp][] = [
      [[a, b, undefined], 'missing-file', /tiny-00003-of-00003\.gguf is missing: the model has 3 parts/],
      [[a, b, b], 'malformed-weights', /00003.* says that it is part 2 of 3/],
      [[a, b, changed(c, ['split.count', 'u32', 4])], 'malformed-weights', /says that it is part 3 of 4/],
      [[a, b, { ...c, tensors: [...c.tensors, b.tensors[0]!] }], 'malformed-weights', /an earlier part has the tensor/],
      [[a, b, { ...c, tensors: c.tensors.slice(1) }], 'malformed-weights', /tensors, and should have/],
      [[a, b], 'malformed-weights', /one of 3 parts, and its name does not say so/],
      [[changed(a, ['split.no', 'u32', 1]), b, c], 'malformed-weights', /00001.* says that it is part 2 of 3/],
      [[changed(a, ['split.count', 'u32', 4_000_000_000]), b, c], 'malformed-weights', /one of 4000000000 parts/],
    ];
    for (const [parts, code, message] of cases) {
      const first = await write(parts);
      assert.throws(() => readGguf(first), { code, message });
    }
  });

  it('is named by its first part', () => {
    assert.equal(partNames('model.gguf'), null);
    assert.equal(partNames('model-00001-of-99999.gguf'), null);
    assert.deepEqual(partNames('a-b-00001-of-00002.GGUF'), ['a-b-00001-of-00002.GGUF', 'a-b-00002-of-00002.GGUF']);
    assert.throws(() => partNames('a-00002-of-00003.gguf'), {
      code: 'invalid-source',
      hint: 'name the first part: a-00001-of-00003.gguf',
    });
  });
});
