import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { deflateSync } from 'node:zlib';
import { decode } from './decode.ts';
import { ImageFault } from './fault.ts';
import { readHeader, refuseSize } from './header.ts';
import { PNG_HEADER_BYTES, png } from './testing/png.ts';

interface Golden {
  readonly size: readonly number[];
  readonly file: string;
  readonly pixels: string;
}

/** Small images, and the pixels that Pillow decodes from them (`fixtures/decode-golden.py`). */
const { refused, ...images } = JSON.parse(
  readFileSync(new URL('./fixtures/decode-golden.json', import.meta.url), 'utf8'),
) as Record<string, Golden> & { refused: never };
const unsupported = refused as unknown as Readonly<Record<string, string>>;

/**
 * Returns the allowed largest and mean difference of a byte from Pillow. PNG is exact; for a JPEG, this decoder's inverse DCT rounds
 * differently, and it does not smooth chroma.
 */
function errorsOf(name: string): readonly [largest: number, mean: number] {
  if (name.startsWith('png')) return [0, 0];
  return name.includes('4:2:0') ? [40, 5] : [4, 1];
}

const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'));

describe('decoding images', () => {
  for (const [name, { size, file, pixels }] of Object.entries(images)) {
    it(`${name}: the pixels equal those of Pillow`, () => {
      const header = readHeader(bytes(file));
      assert.deepEqual([header.width, header.height], size);
      const { width, height, data } = decode(bytes(file));
      assert.deepEqual([width, height], size);
      const expected = bytes(pixels);
      assert.equal(data.length, expected.length);
      const errors = Array.from(data, (value, i) => Math.abs(value - expected[i]!));
      const [largest, mean] = errorsOf(name);
      assert.ok(Math.max(...errors) <= largest, `a byte differs by ${Math.max(...errors)}`);
      const meanError = errors.reduce((sum, error) => sum + error, 0) / errors.length;
      assert.ok(meanError <= mean, `the mean difference is ${meanError}`);
    });
  }

  it('decodes a handwritten pixel', () => {
    const { data } = decode(png(1, 1, deflateSync(Uint8Array.of(0, 10, 20, 30))));
    assert.deepEqual([...data], [10, 20, 30]);
  });

  for (const [name, file] of Object.entries(unsupported)) {
    it(`refuses ${name}`, () => assert.throws(() => decode(bytes(file)), ImageFault));
  }

  it('refuses damaged images as bad images, wherever they are cut or changed', () => {
    for (const name of [
      'png palette',
      'png interlaced color',
      'jpeg 4:2:0',
      'jpeg progressive',
      'jpeg orientation 6',
    ]) {
      const whole = bytes(images[name]!.file);
      for (let cut = 0; cut < whole.length; cut += 7) attempt(whole.subarray(0, cut), `${name} cut at ${cut}`);
      for (let at = 0; at < whole.length; at += 5) {
        const changed = whole.slice();
        changed[at] = (changed[at] ?? 0) ^ 0xff;
        attempt(changed, `${name} changed at ${at}`);
      }
    }
    assert.throws(() => decode(bytes(images['png color']!.file).subarray(0, 60)), ImageFault);
    assert.throws(() => decode(bytes(images['jpeg 4:4:4']!.file).subarray(0, 300)), ImageFault);
  });

  it('takes the orientation of an EXIF directory only when its entry is whole', () => {
    const plain = bytes(images['jpeg 4:4:4']!.file);
    const start = [0x4d, 0x4d, 0, 0x2a, 0, 0, 0, 8];
    const entry = [0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
    const whole = [...start, 0, 1, ...entry];
    for (let length = 0; length <= whole.length; length++) {
      const segment = [...Buffer.from('Exif\0\0'), ...whole.slice(0, length)];
      const image = Uint8Array.of(0xff, 0xd8, 0xff, 0xe1, 0, segment.length + 2, ...segment, ...plain.subarray(2));
      assert.equal(readHeader(image).orientation, length === whole.length ? 6 : 1, `${length} bytes`);
    }
  });

  it('refuses images that are too large by their header, and data that unpacks to more than declared', () => {
    for (const [width, height] of [
      [4001, 4000],
      [16_385, 1],
      [0, 5],
    ] as const) {
      assert.throws(() => decode(png(width, height, deflateSync(new Uint8Array(4)))), ImageFault);
      assert.notEqual(refuseSize({ width, height }), null);
    }
    assert.equal(refuseSize({ width: 4000, height: 4000 }), null);
    // Both functions check the file's length first, because any number of bytes may precede the dimensions in a JPEG.
    const long = new Uint8Array(8 * 1024 * 1024 + 1).fill(0xff).fill(0xd8, 1, 2);
    for (const read of [decode, readHeader]) assert.throws(() => read(long), /bytes/);
    const bomb = deflateSync(new Uint8Array(64 * 1024 * 1024));
    const before = process.memoryUsage().arrayBuffers;
    for (const interlace of [0, 1]) attempt(png(8, 8, bomb, { interlace }), 'bomb');
    assert.throws(() => decode(png(8, 8, bomb, { interlace: 1 })), ImageFault);
    assert.ok(process.memoryUsage().arrayBuffers - before < 16 * 1024 * 1024);
  });

  it('refuses a second header, which would escape the bounds, and ignores bytes after the end', () => {
    const small = png(1, 1, deflateSync(Uint8Array.of(0, 1, 2, 3)));
    const large = png(5000, 4000, deflateSync(new Uint8Array(4000 * 15_001)));
    assert.throws(
      () => decode(new Uint8Array([...small.subarray(0, PNG_HEADER_BYTES), ...large.subarray(8)])),
      /size twice/,
    );
    const withTrailingBytes = decode(new Uint8Array([...small, ...large.subarray(8)]));
    assert.deepEqual([withTrailingBytes.width, withTrailingBytes.height, ...withTrailingBytes.data], [1, 1, 1, 2, 3]);
  });
});

/** Decodes the bytes, or asserts that they are refused as a bad image. */
function attempt(image: Uint8Array, what: string): void {
  try {
    decode(image);
  } catch (error) {
    assert.ok(error instanceof ImageFault, `${what}: ${error}`);
  }
}
