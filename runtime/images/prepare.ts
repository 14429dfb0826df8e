import type { Color, ImagePreparation } from '#gpu-host/models/vision/preparation.ts';
import type { DecodedImage } from './decode.ts';
import { type Rows, resample } from './resample.ts';

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
