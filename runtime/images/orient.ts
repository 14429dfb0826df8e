import type { DecodedImage } from './decode.ts';

/** Turns an image upright: `orientation` is EXIF's, 1 to 8 (Exif 2.32, tag 0x0112). */
export function oriented(image: DecodedImage, orientation: number): DecodedImage {
  if (orientation === 1) return image;
  const { width, height, data } = image;
  const swaps = orientation >= 5;
  const [toWidth, toHeight] = swaps ? [height, width] : [width, height];
  const turned = new Uint8Array(data.length);
  const right = width - 1;
  const bottom = height - 1;
  // Index of the source pixel that is shown at (x, y).
  const source = (x: number, y: number): number => {
    switch (orientation) {
      case 2:
        return y * width + right - x;
      case 3:
        return (bottom - y) * width + right - x;
      case 4:
        return (bottom - y) * width + x;
      case 5:
        return x * width + y;
      case 6:
        return (bottom - x) * width + y;
      case 7:
        return (bottom - x) * width + right - y;
      default:
        return x * width + right - y;
    }
  };
  for (let y = 0, to = 0; y < toHeight; y++) {
    for (let x = 0; x < toWidth; x++, to += 3) {
      const from = 3 * source(x, y);
      turned[to] = data[from] ?? 0;
      turned[to + 1] = data[from + 1] ?? 0;
      turned[to + 2] = data[from + 2] ?? 0;
    }
  }
  return { width: toWidth, height: toHeight, data: turned };
}
