import type { Color, ImagePreparation, ResizeFilter } from '#gpu-host/models/vision/preparation.ts';
import type { DecodedImage } from './decode.ts';

/**
 * Makes the square of pixels that a model takes, `size × size`, three bytes each: pads the image to a square where the model wants that,
 * resizes it, and crops its centre, as the image processors of transformers do with Pillow. The device normalises the pixels.
 */
export function prepare(image: DecodedImage, { size, pad, shortestEdge, filter }: ImagePreparation): Uint8Array {
  const source = pad ? paddedToSquare(image, pad) : rowsOf(image);
  if (shortestEdge === null) return resample(source, { width: size, height: size, left: 0, top: 0, size }, filter);
  const { width, height } = source;
  const longEdge = Math.trunc((shortestEdge * Math.max(width, height)) / Math.min(width, height));
  const [toWidth, toHeight] = width <= height ? [shortestEdge, longEdge] : [longEdge, shortestEdge];
  const window = {
    width: toWidth,
    height: toHeight,
    left: Math.floor((toWidth - size) / 2),
    top: Math.floor((toHeight - size) / 2),
    size,
  };
  return resample(source, window, filter);
}

function rowsOf({ width, height, data }: DecodedImage): Rows {
  return { width, height, row: (y) => data.subarray(3 * width * y, 3 * width * (y + 1)) };
}

/** Pads an image to a square with the image in its middle. A row is valid until the next one is read. */
function paddedToSquare(image: DecodedImage, color: Color): Rows {
  const { width, height } = image;
  const side = Math.max(width, height);
  const [left, top] = [Math.floor((side - width) / 2), Math.floor((side - height) / 2)];
  const imageRows = rowsOf(image);
  const empty = Uint8Array.from({ length: 3 * side }, (_, i) => color[i % 3] ?? 0);
  const row = empty.slice();
  return {
    width: side,
    height: side,
    row: (y) => {
      if (y < top || y >= top + height) return empty;
      row.set(imageRows.row(y - top), 3 * left);
      return row;
    },
  };
}

/** An image that is read row by row, three bytes per pixel. */
export interface Rows {
  readonly width: number;
  readonly height: number;
  row(y: number): Uint8Array;
}

/** A part of a resized image. */
export interface Window {
  /** Size of the whole resized image. */
  readonly width: number;
  readonly height: number;
  /** Top left corner of the part, a square with sides of `size` pixels. */
  readonly left: number;
  readonly top: number;
  readonly size: number;
}

/** Fraction bits of a weight, as in Pillow's 8-bit resizing. */
const PRECISION_BITS = 22;

const FILTERS: Readonly<Record<ResizeFilter, { readonly reach: number; weight(x: number): number }>> = {
  bilinear: { reach: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: { reach: 2, weight: cubic },
  lanczos: { reach: 3, weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** Keys' cubic with a = −1/2 (1981). */
function cubic(x: number): number {
  const a = -0.5;
  const t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  if (t < 2) return (((t - 5) * t + 8) * t - 4) * a;
  return 0;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/**
 * Resizes an image with antialiasing and returns a part of the result: Pillow's `Image.resize`, integer for integer (`Resample.c`: weights
 * of 22 bits; columns first, rounded to bytes, then rows; a side that keeps its length is not resampled). Computes only that part.
 */
export function resample(source: Rows, { width, height, left, top, size }: Window, filter: ResizeFilter): Uint8Array {
  const columns = weightsOf(source.width, width, left, size, filter);
  const lines = weightsOf(source.height, height, top, size, filter);
  const firstLine = lines.starts[0] ?? 0;
  const endLine = Math.max(...lines.starts.map((start, i) => start + (lines.counts[i] ?? 0)));
  const intermediate = new Uint8Array((endLine - firstLine) * size * 3);
  for (let y = firstLine; y < endLine; y++) {
    const row = source.row(y);
    for (let x = 0, to = (y - firstLine) * size * 3; x < size; x++, to += 3) {
      mix(row, 3 * (columns.starts[x] ?? 0), 3, columns, x, intermediate, to);
    }
  }
  const result = new Uint8Array(size * size * 3);
  for (let y = 0, to = 0; y < size; y++) {
    const start = ((lines.starts[y] ?? 0) - firstLine) * size * 3;
    for (let x = 0; x < size; x++, to += 3) mix(intermediate, start + 3 * x, 3 * size, lines, y, result, to);
  }
  return result;
}

/** For each pixel of a resized line: its first source pixel, the number of its source pixels, and their weights. */
interface Weights {
  readonly starts: readonly number[];
  readonly counts: readonly number[];
  readonly values: readonly Int32Array[];
}

/** The weights of `count` pixels, from the pixel `first` on, of a line that is resized from `from` to `to` pixels. */
function weightsOf(from: number, to: number, first: number, count: number, filter: ResizeFilter): Weights {
  const starts: number[] = [];
  const values: Int32Array[] = [];
  const { reach, weight } = FILTERS[filter];
  const scale = from / to;
  const stretch = Math.max(1, scale);
  for (let i = 0; i < count; i++) {
    if (from === to) {
      starts.push(first + i);
      values.push(Int32Array.of(1 << PRECISION_BITS));
      continue;
    }
    const center = (first + i + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - reach * stretch + 0.5));
    const end = Math.min(from, Math.trunc(center + reach * stretch + 0.5));
    const exact = Array.from({ length: end - start }, (_, k) => weight((k + start - center + 0.5) / stretch));
    const sum = exact.reduce((total, value) => total + value, 0);
    starts.push(start);
    values.push(Int32Array.from(exact, (value) => fixed(sum === 0 ? value : value / sum)));
  }
  return { starts, counts: values.map(({ length }) => length), values };
}

function fixed(value: number): number {
  return Math.trunc(value * 2 ** PRECISION_BITS + (value < 0 ? -0.5 : 0.5));
}

/** Computes one pixel: three sums over `from`, whose pixels are `step` bytes apart. */
function mix(
  from: Uint8Array,
  at: number,
  step: number,
  weights: Weights,
  position: number,
  to: Uint8Array,
  toAt: number,
) {
  const values = weights.values[position] ?? NOTHING;
  // One half, so that `byteOf` rounds to the nearest integer.
  let red = 1 << (PRECISION_BITS - 1);
  let green = red;
  let blue = red;
  for (let k = 0, i = at; k < values.length; k++, i += step) {
    const value = values[k] as number;
    red += value * (from[i] as number);
    green += value * (from[i + 1] as number);
    blue += value * (from[i + 2] as number);
  }
  to[toAt] = byteOf(red);
  to[toAt + 1] = byteOf(green);
  to[toAt + 2] = byteOf(blue);
}

const NOTHING = new Int32Array(0);

function byteOf(sum: number): number {
  const value = sum >> PRECISION_BITS;
  return Math.max(0, Math.min(255, value));
}
