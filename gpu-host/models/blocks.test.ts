import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { expectedTensors, type LoadedModel, openTensors } from './load.ts';
import { readStoredTensors, type TensorSource, writeSafetensors } from './safetensors.ts';
import { isBlocked, isPacked, readValues, readValuesAhead, rowOf, tensorsOf } from './tensors.ts';
import { blockedModel, packedModel } from './testing/blocked-model.ts';
import { randomModel } from './testing/random-model.ts';
import { widenBlocks } from './widen.ts';

describe('matrices in blocks', () => {
  let directory: string;
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-blocks-'));
    model = await randomModel(join(directory, 'model'), { hiddenSize: 64, intermediateSize: 96, headDim: 16 }, 3);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('recognises a matrix in blocks by its tensors, if their shapes fit each other', async () => {
    const file = join(directory, 'model.safetensors');
    const bytes = (name: string, ...shape: number[]): TensorSource => ({
      name,
      shape,
      dtype: 'U8',
      data: () => [Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i)],
    });
    const scales = (name: string, ...shape: number[]): TensorSource => ({
      name: `${name}.scales`,
      shape,
      data: () => Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i + 1),
    });
    await writeSafetensors(file, [
      // Valid matrices, the last two with zero points.
      ...[bytes('a.int8', 2, 1, 16), scales('a', 2, 1)],
      ...[bytes('b.int4', 1, 2, 16), scales('b', 1, 2)],
      ...[bytes('z.int4', 2, 3, 8), scales('z', 2, 3), bytes('z.zeros', 2, 2)],
      ...[bytes('y.int8', 2, 1, 128), scales('y', 2, 1), bytes('y.zeros', 2, 1)],
      // Levels without scales, and a tensor that is no part of a matrix in blocks.
      ...[bytes('lone.int8', 2, 1, 32), bytes('plain', 2, 32)],
      // Scales of another shape; blocks of 256 columns, which are not supported; levels without a dimension of blocks.
      ...[bytes('other.int8', 2, 1, 32), scales('other', 1, 2)],
      ...[bytes('wide.int8', 2, 1, 256), scales('wide', 2, 1)],
      ...[bytes('flat.int8', 2, 32), scales('flat', 2, 1)],
      // Three zero points of 4 bits take 2 bytes a row, not 3.
      ...[bytes('odd.int4', 2, 3, 8), scales('odd', 2, 3), bytes('odd.zeros', 2, 3)],
    ]);
    const found = tensorsOf(readStoredTensors(file));
    const blocked = [...found].flatMap(([name, info]) => (isBlocked(info) ? [[name, info.shape, info.blockSize]] : []));
    assert.deepEqual(blocked, [
      ['a', [2, 16], 16],
      ['b', [1, 64], 32],
      ['z', [2, 48], 16],
      ['y', [2, 128], 128],
    ]);
    assert.ok(![...found.keys()].some((name) => name === 'plain' || /(int[48]|zeros)$/.test(name)));
    const tensors = await openTensors(directory);
    // The levels are 0 to 31, and the middle level is 128; the scale is 1 in row 0 and 2 in row 1.
    assert.deepEqual(
      [...tensors.read('a')],
      [...Array.from({ length: 16 }, (_, i) => i - 128), ...Array.from({ length: 16 }, (_, i) => 2 * (i + 16 - 128))],
    );
    // The low half of a byte comes first: the bytes 0x00 and 0x01 hold the levels 0, 0, 1 and 0, and the last byte 0x1f holds 15 and 1.
    // The middle level is 8, and the second block has the scale 2.
    assert.deepEqual(
      [...tensors.read('b').subarray(0, 4), ...tensors.read('b').subarray(-2)],
      [-8, -8, -7, -8, 14, -14],
    );
    // A block has 8 of the bytes 0 to 47, and its first level is the low half of its first byte: 0, 8, 0, 8, 0, 8.
    // The zero points are 0, 0, 1 in row 0 and 2, 0, 3 in row 1; the scales are 1 to 6.
    const firstOfBlocks = Array.from({ length: 6 }, (_, block) => tensors.read('z')[16 * block]);
    assert.deepEqual(firstOfBlocks, [0, 2 * 8, 3 * -1, 4 * (8 - 2), 0, 6 * (8 - 3)]);
    assert.deepEqual([tensors.read('y')[5], tensors.read('y')[128]], [5, 2 * (128 - 1)]);
  });

  it("a row of a matrix in a GGUF file is that of the whole matrix, in Hugging Face's order", async () => {
    const { tensors } = await packedModel(model, 'Q8_0', directory);
    for (const name of ['model.layers.1.self_attn.q_proj.weight', 'model.embed_tokens.weight']) {
      const info = tensors.info(name);
      assert.ok(isPacked(info));
      const [rows = 0, columns = 0] = info.shape;
      const whole = tensors.read(name);
      for (let row = 0; row < rows; row++)
        assert.deepEqual(readValues(rowOf(info, row)), whole.subarray(row * columns, (row + 1) * columns));
      assert.deepEqual(await readValuesAhead(rowOf(info, 5)), whole.subarray(5 * columns, 6 * columns));
      assert.throws(() => rowOf(info, rows), RangeError);
    }
  });

  it('widenBlocks writes the values of blocks as plain floats to one file, which the next call reuses', async () => {
    const blocked = await blockedModel(model, 'Q8_0', directory);
    await writeFile(join(blocked.directory, 'widened.safetensors.5f3c.partial'), 'left by a GPU host that was killed');
    const wide = await widenBlocks(blocked);
    const again = await widenBlocks(blocked);
    for (const [name, shape] of expectedTensors(model.config)) {
      const info = wide.tensors.info(name);
      assert.ok(!isBlocked(info));
      assert.deepEqual([info.shape, again.tensors.info(name)], [shape, info]);
      assert.deepEqual(wide.tensors.read(name), blocked.tensors.read(name));
    }
    const files = (await readdir(blocked.directory)).filter((name) => name.startsWith('widened.'));
    assert.deepEqual(files, ['widened.safetensors']);
    assert.equal(await widenBlocks(model), model, 'a model without blocks stays as it is');
  });
});
