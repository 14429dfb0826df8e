import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import type { ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import type { DecodedImage } from './decode.ts';
import { prepare } from './prepare.ts';

/** The output of transformers' image processors over Pillow for the same images (`fixtures/prepare-golden.py`). */
const golden = JSON.parse(readFileSync(new URL('./fixtures/prepare-golden.json', import.meta.url), 'utf8')) as Readonly<
  Record<string, string>
>;

const SIZE = 12;
const plain: ImagePreparation = {
  size: SIZE,
  pad: null,
  shortestEdge: SIZE,
  filter: 'bicubic',
  scale: 1 / 255,
  mean: [0.5, 0.5, 0.5],
  deviation: [0.5, 0.5, 0.5],
};
const PREPARATIONS: Readonly<Record<string, ImagePreparation>> = {
  'edge 12 lanczos': { ...plain, filter: 'lanczos' },
  'edge 12 bilinear': { ...plain, filter: 'bilinear' },
  'edge 12 bicubic': plain,
  'edge 17 bicubic': { ...plain, shortestEdge: 17 },
  'square bicubic': { ...plain, shortestEdge: null },
  // CLIP's mean, as bytes.
  'pad bicubic': { ...plain, pad: [122, 116, 104] },
};

function imageOf(width: number, height: number): DecodedImage {
  const value = (i: number) => (i * i * 31 + i * 7 + (Math.floor(i / 3) % width) * 40) % 256;
  return { width, height, data: Uint8Array.from({ length: 3 * width * height }, (_, i) => value(i)) };
}

describe('preparing images', () => {
  for (const [name, preparation] of Object.entries(PREPARATIONS)) {
    it(`${name}: the bytes equal those of transformers with Pillow`, () => {
      const cases = Object.entries(golden).filter(([key]) => key.startsWith(`${name} `));
      assert.equal(cases.length, 8);
      for (const [key, expected] of cases) {
        const [width = 0, height = 0] = key
          .slice(name.length + 1)
          .split('x')
          .map(Number);
        const found = Buffer.from(prepare(imageOf(width, height), preparation));
        assert.equal(found.toString('base64'), expected, key);
      }
    });
  }

  it('halves an image of two colours to the values computed by hand', () => {
    // From 4 pixels to 2, the bilinear weights are 1/8, 3/8, 3/8 and 1/8. One weight of 1/8 falls outside the image, so the sum of the
    // others is divided by 7/8.
    const image: DecodedImage = { width: 4, height: 4, data: new Uint8Array(3 * 4 * 4) };
    // The left half of each row has the value 210, the right half 0.
    for (let y = 0; y < 4; y++) image.data.fill(210, 3 * 4 * y, 3 * (4 * y + 2));
    const halved = prepare(image, { ...plain, size: 2, shortestEdge: null, filter: 'bilinear' });
    assert.deepEqual([halved[0], halved[3]], [Math.round((210 * 6) / 7), Math.round(210 / 7)]);
  });

  it('crops a long image to its middle', () => {
    // The image is enlarged 12 times, so the crop of 12 pixels shows one pixel of the middle, mixed with its neighbours.
    const long = imageOf(16_000, 1);
    const changedEnds = {
      ...long,
      data: long.data.map((value, i) => (Math.abs(i / 3 - 8000) < 4 ? value : 255 - value)),
    };
    assert.deepEqual(prepare(changedEnds, plain), prepare(long, plain));
  });
});
