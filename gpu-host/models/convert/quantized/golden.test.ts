import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { openTensors } from '../../load.ts';
import { readStoredTensors, writeSafetensors } from '../../safetensors.ts';
import { type GroupedMatrix, groupedSources } from './blocks.ts';
import { awqMatrix, gptqMatrix, packedMatrix } from './convert.ts';
import { Stored } from './stored.ts';
import { type Raw, safetensors } from './testing/write.ts';

const NAME = 'matrix.weight';
const SHAPE = [32, 32];

interface Golden {
  readonly tensors: Readonly<Record<string, { dtype: string; shape: number[]; bytes: string }>>;
  readonly values: string;
}

const gptq = (bits: 4 | 8, reordered: boolean) => (stored: Stored) =>
  gptqMatrix({ kind: 'gptq', bits, groupSize: 16, zerosLessOne: true, reordered }, stored, NAME, SHAPE);
const packed = (bits: 4 | 8) => (stored: Stored) =>
  packedMatrix({ kind: 'packed', bits, groupSize: 14, hasZeros: true, reordered: false }, stored, NAME, [12, 28]);

const READERS: Readonly<Record<string, (stored: Stored) => GroupedMatrix | null>> = {
  awq: (stored) => awqMatrix({ kind: 'awq', groupSize: 16 }, stored, NAME, SHAPE),
  'gptq from awq': gptq(4, false),
  'gptq, 4 bits': gptq(4, false),
  'gptq, 4 bits, reordered': gptq(4, true),
  'gptq, 8 bits': gptq(8, false),
  'gptq, 8 bits, reordered': gptq(8, true),
  'packed, 4 bits': packed(4),
  'packed, 8 bits': packed(8),
};

describe("matrices that the quantisers' own code packed", () => {
  let directory: string;
  let golden: Record<string, Golden>;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-quantized-golden-'));
    golden = JSON.parse(await readFile(join(import.meta.dirname, 'fixtures/golden.json'), 'utf8'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const store = async (tensors: ReadonlyMap<string, Raw>) => {
    const file = join(directory, 'stored.safetensors');
    await writeFile(file, safetensors(tensors));
    return new Stored(readStoredTensors(file));
  };
  const floats = (hex: string) => new Float32Array(Uint8Array.from(Buffer.from(hex, 'hex')).buffer);

  for (const [name, read] of Object.entries(READERS)) {
    it(`${name}: blocks or floats have the values that the quantiser's own code unpacks`, async () => {
      const { tensors, values } = golden[name]!;
      const raw = Object.entries(tensors).map(([end, { bytes, ...rest }]): [string, Raw] => [
        `matrix.${end}`,
        { ...rest, bytes: Buffer.from(bytes, 'hex') },
      ]);
      const matrix = read(await store(new Map(raw)));
      assert.ok(matrix);
      await writeSafetensors(join(directory, 'model.safetensors'), groupedSources(NAME, matrix));
      assert.deepEqual((await openTensors(directory)).read(NAME), floats(values));
    });
  }
});
