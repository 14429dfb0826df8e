import assert from 'node:assert/strict';
import { mkdtemp, open, rm, truncate, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { ModelError } from './errors.ts';
import { openTensors, type TensorStore } from './load.ts';
import { MatrixRows } from './matrix-rows.ts';
import { readStoredTensors, type TensorSource, writeSafetensors } from './safetensors.ts';
import { tensorsOf } from './tensors.ts';

const ROWS = 40;
const COLUMNS = 96;

describe('rows of a matrix', () => {
  let directory: string;
  let tensors: TensorStore;
  const file = () => join(directory, 'model.safetensors');

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-rows-'));
    const below = seeded(1);
    const bytes = (name: string, dtype: TensorSource['dtype'], ...shape: number[]): TensorSource => {
      const width = dtype === 'U8' ? 1 : 2;
      const count = shape.reduce((a, b) => a * b, width);
      // The upper byte of a 16-bit float stays below those of infinities and NaN.
      return {
        name,
        shape,
        dtype,
        data: () => [Uint8Array.from({ length: count }, () => below(width === 1 ? 256 : 0x70))],
      };
    };
    const floats = (name: string, ...shape: number[]): TensorSource => ({
      name,
      shape,
      data: () => Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => below(1000) / 7),
    });
    await writeSafetensors(file(), [
      floats('float32', ROWS, COLUMNS),
      bytes('float16', 'F16', ROWS, COLUMNS),
      bytes('bfloat16', 'BF16', ROWS, COLUMNS),
      ...[bytes('eight.int8', 'U8', ROWS, 3, 32), floats('eight.scales', ROWS, 3), bytes('eight.zeros', 'U8', ROWS, 3)],
      ...[bytes('four.int4', 'U8', ROWS, 3, 16), floats('four.scales', ROWS, 3), bytes('four.zeros', 'U8', ROWS, 2)],
      ...[bytes('plain.int4', 'U8', ROWS, 3, 16), floats('plain.scales', ROWS, 3)],
    ]);
    tensors = await openTensors(directory);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('are those of the whole matrix, in every format, in any order, and within the bound', async () => {
    const keptRows = 5;
    for (const name of ['float32', 'float16', 'bfloat16', 'eight', 'four', 'plain']) {
      const whole = tensors.read(name);
      const rows = new MatrixRows(tensors.info(name), keptRows * COLUMNS * 4);
      const below = seeded(2);
      for (let round = 0; round < 60; round++) {
        const wanted = Array.from({ length: 1 + below(8) }, () => below(ROWS));
        if (below(2) === 0) await rows.prefetch(wanted);
        for (const row of wanted)
          assert.deepEqual(rows.row(row), whole.slice(row * COLUMNS, (row + 1) * COLUMNS), `row ${row} of ${name}`);
        assert.ok(rows.keptBytes <= keptRows * COLUMNS * 4);
      }
      assert.equal(rows.keptBytes, keptRows * COLUMNS * 4);
    }
  });

  it('are read once while they are kept, and not beyond the bound', async () => {
    const rows = new MatrixRows(tensors.info('float32'), 3 * COLUMNS * 4);
    await rows.prefetch(Array(ROWS).keys());
    assert.equal(rows.keptBytes, 3 * COLUMNS * 4);
    assert.equal(rows.prefetch([0, 1, 2, 2]), undefined);
    for (let row = 0; row <= 3; row++) rows.row(row);
    assert.equal(rows.prefetch([1, 2]), undefined, 'the row that was not used for longest has gone');
    assert.ok(rows.prefetch([0]));
    assert.throws(() => rows.row(ROWS), RangeError);
  });

  it('take no more memory than they need, however large the matrix', async () => {
    const large = join(directory, 'large.safetensors');
    const header = JSON.stringify({
      m: { dtype: 'BF16', shape: [151_936, 4096], data_offsets: [0, 151_936 * 4096 * 2] },
    });
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    const handle = await open(large, 'w');
    await handle.writev([length, Buffer.from(header)]);
    await handle.close();
    // The file has holes for its values.
    await truncate(large, 8 + header.length + 151_936 * 4096 * 2);
    const info = tensorsOf(readStoredTensors(large)).get('m');
    assert.ok(info);
    const rows = new MatrixRows(info);
    const before = process.memoryUsage().arrayBuffers;
    await rows.prefetch([0, 75_000, 151_935]);
    assert.deepEqual([rows.row(75_000).length, rows.keptBytes], [4096, 3 * 4096 * 4]);
    assert.ok(process.memoryUsage().arrayBuffers - before < 1 << 20);
  });

  it('of a file that was changed are refused, also when they were read ahead', async () => {
    const rows = new MatrixRows(tensors.info('eight'));
    rows.row(1);
    const now = new Date();
    await utimes(file(), now, now);
    await rows.prefetch([1, 2]);
    assert.equal(rows.row(1).length, COLUMNS, 'a kept row is that of the first file');
    assert.throws(
      () => rows.row(2),
      (error) => error instanceof ModelError && /was changed/.test(error.message),
    );
  });
});
