import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { deflateSync } from 'node:zlib';
import { decode } from './decode.ts';
import { ImageFault, readHeader, refuseSize } from './header.ts';
import { PNG_HEADER_BYTES, png } from './testing/png.ts';

/** A small image, and what Pillow decodes from it. */
interface Golden {
  /** Width and height. */
  readonly size: readonly number[];
  /** Base64. */
  readonly file: string;
  /** Base64 of red, green and blue bytes. */
  readonly pixels: string;
}

/** The output of `fixtures/decode-golden.py`: goldens by name, and in `refused` image files (base64) of formats that the decoder does not support. */
const { refused: unsupported, ...others } = JSON.parse(
  readFileSync(new URL('./fixtures/decode-golden.json', import.meta.url), 'utf8'),
) as { readonly refused: Readonly<Record<string, string>> };
const goldens = others as Readonly<Record<string, Golden>>;

/**
 * Returns the largest and the mean difference from Pillow's bytes that an image may have. PNG is exact. For JPEG, the decoder's inverse DCT
 * rounds differently from Pillow's. The decoder does not smooth chroma of a lower resolution (4:2:0), and Pillow does.
 */
function allowedErrorsOf(name: string): readonly [largest: number, mean: number] {
  if (name.startsWith('png')) return [0, 0];
  return name.includes('4:2:0') ? [40, 5] : [4, 1];
}

const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'));

describe('the image decoder', () => {
  for (const [name, { size, file, pixels }] of Object.entries(goldens)) {
    it(`gives the pixels of Pillow for ${name}`, () => {
      const header = readHeader(bytes(file));
      assert.deepEqual([header.width, header.height], size);
      const { width, height, data } = decode(bytes(file));
      assert.deepEqual([width, height], size);
      const expected = bytes(pixels);
      assert.equal(data.length, expected.length);
      const errors = Array.from(data, (value, i) => Math.abs(value - expected[i]!));
      const [maxError, maxMeanError] = allowedErrorsOf(name);
      assert.ok(Math.max(...errors) <= maxError, `a byte differs by ${Math.max(...errors)}`);
      const meanError = errors.reduce((sum, error) => sum + error, 0) / errors.length;
      assert.ok(meanError <= maxMeanError, `the mean difference is ${meanError}`);
    });
  }

  it('gives the colours of a handwritten pixel', () => {
    // A row begins with the number of its filter; 0 is none.
    const { data } = decode(png(1, 1, deflateSync(Uint8Array.of(0, 10, 20, 30))));
    assert.deepEqual([...data], [10, 20, 30]);
  });

  for (const [name, file] of Object.entries(unsupported)) {
    it(`refuses ${name}`, () => assert.throws(() => decode(bytes(file)), ImageFault));
  }

  it('throws nothing but ImageFault for images that are cut or changed', () => {
    for (const name of [
      'png palette',
      'png interlaced color',
      'jpeg 4:2:0',
      'jpeg progressive',
      'jpeg orientation 6',
    ]) {
      const whole = bytes(goldens[name]!.file);
      for (let cut = 0; cut < whole.length; cut += 7) decodeOrRefuse(whole.subarray(0, cut), `${name} cut at ${cut}`);
      for (let at = 0; at < whole.length; at += 5) {
        const changed = whole.slice();
        changed[at] = (changed[at] ?? 0) ^ 0xff;
        decodeOrRefuse(changed, `${name} changed at ${at}`);
      }
    }
  });

  it('refuses an image that ends early', () => {
    // Two of three rows, and far too little for the size in the header.
    for (const interlace of [0, 1]) {
      assert.throws(() => decode(png(1, 3, deflateSync(new Uint8Array(8)), { interlace })), /fewer pixels/);
      assert.throws(() => decode(png(4000, 4000, deflateSync(new Uint8Array(10)), { interlace })), /fewer pixels/);
    }
    assert.throws(
      () => decode(png(1, 2, deflateSync(new Uint8Array(8)).subarray(0, -6))),
      (error) => error instanceof ImageFault && !/inflate|buffer/i.test(error.message),
    );
    assert.throws(() => decode(bytes(goldens['png color']!.file).subarray(0, 60)), ImageFault);
    assert.throws(() => decode(bytes(goldens['jpeg 4:4:4']!.file).subarray(0, 300)), ImageFault);
  });

  it('takes the orientation of an EXIF directory only when its entry is whole', () => {
    const plain = bytes(goldens['jpeg 4:4:4']!.file);
    // A big-endian TIFF header: the directory begins at byte 8.
    const tiffHeader = [0x4d, 0x4d, 0, 0x2a, 0, 0, 0, 8];
    // The entry of the orientation: its tag, and one 16-bit number, 6.
    const entry = [0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
    // The directory has one entry.
    const whole = [...tiffHeader, 0, 1, ...entry];
    for (let length = 0; length <= whole.length; length++) {
      const segment = [...Buffer.from('Exif\0\0'), ...whole.slice(0, length)];
      // The start of the image, the EXIF segment (APP1) with its length, and the rest of the plain image.
      const image = Uint8Array.of(0xff, 0xd8, 0xff, 0xe1, 0, segment.length + 2, ...segment, ...plain.subarray(2));
      assert.equal(readHeader(image).orientation, length === whole.length ? 6 : 1, `${length} bytes`);
    }
  });

  it('refuses an image whose header declares too many pixels, too long a side, or no pixels', () => {
    for (const [width, height] of [
      [4001, 4000],
      [16_385, 1],
      [0, 5],
    ] as const) {
      assert.throws(() => decode(png(width, height, deflateSync(new Uint8Array(4)))), ImageFault);
      assert.notEqual(refuseSize({ width, height }), null);
    }
    assert.equal(refuseSize({ width: 4000, height: 4000 }), null);
  });

  it('refuses a file that is too large', () => {
    // A JPEG of fill bytes. Both functions check the file's length first, because any number of bytes may precede a JPEG's dimensions.
    const long = new Uint8Array(8 * 1024 * 1024 + 1).fill(0xff).fill(0xd8, 1, 2);
    for (const read of [decode, readHeader]) assert.throws(() => read(long), /bytes/);
  });

  it('unpacks no more data than the header declares', () => {
    const bomb = deflateSync(new Uint8Array(64 * 1024 * 1024));
    const before = process.memoryUsage().arrayBuffers;
    assert.throws(() => decode(png(8, 8, bomb, { interlace: 1 })), /more pixels/);
    // Bytes behind the last pixel are passed over, as Pillow does.
    assert.deepEqual([...decode(png(1, 1, deflateSync(Uint8Array.of(0, 1, 2, 3, 4)))).data], [1, 2, 3]);
    decodeOrRefuse(png(8, 8, bomb), 'bomb');
    assert.ok(process.memoryUsage().arrayBuffers - before < 16 * 1024 * 1024);
  });

  it('refuses a second header, whose size would escape the bounds, and ignores bytes after the end', () => {
    const small = png(1, 1, deflateSync(Uint8Array.of(0, 1, 2, 3)));
    // Each of its 4000 rows has a filter byte and 5000 pixels of three bytes.
    const large = png(5000, 4000, deflateSync(new Uint8Array(4000 * 15_001)));
    // The large image follows without its signature of eight bytes.
    assert.throws(
      () => decode(new Uint8Array([...small.subarray(0, PNG_HEADER_BYTES), ...large.subarray(8)])),
      /size twice/,
    );
    const withTrailingBytes = decode(new Uint8Array([...small, ...large.subarray(8)]));
    assert.deepEqual([withTrailingBytes.width, withTrailingBytes.height, ...withTrailingBytes.data], [1, 1, 1, 2, 3]);
  });
});

/** Decodes an image; asserts that an error of the decoder is an ImageFault. */
function decodeOrRefuse(image: Uint8Array, description: string): void {
  try {
    decode(image);
  } catch (error) {
    assert.ok(error instanceof ImageFault, `${description}: ${error}`);
  }
}
