import { inflateSync } from 'node:zlib';
import jpeg from 'jpeg-js';
import { PNG } from 'pngjs';
import { checkImage, ImageFault, MAX_IMAGE_PIXELS } from './header.ts';

/** Rows of pixels from the top, three bytes each: red, green, blue. */
export interface DecodedImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** Maximum memory of the JPEG decoder: a little more than the largest image takes. */
const MAX_JPEG_MEMORY_MB = 512;

/**
 * Decodes a PNG or JPEG as Pillow's `convert('RGB')` does: drops transparency, copies grey to the three colours, and turns the image as
 * its EXIF orientation says.
 *
 * @throws ImageFault when the image is too large, of another format, or damaged
 */
export function decode(image: Uint8Array): DecodedImage {
  const { format, orientation } = checkImage(image);
  try {
    return format === 'png' ? decodePng(image) : oriented(decodeJpeg(image), orientation);
  } catch (cause) {
    if (cause instanceof ImageFault) throw cause;
    // The decoders' messages speak of their own insides.
    throw new ImageFault(
      `the ${format.toUpperCase()} is damaged, or of a kind that is not read here: save it anew, as a PNG or a plain JPEG`,
    );
  }
}

function decodeJpeg(image: Uint8Array): DecodedImage {
  const { width, height, data } = jpeg.decode(image, {
    useTArray: true,
    formatAsRGBA: false,
    tolerantDecoding: false,
    maxResolutionInMP: MAX_IMAGE_PIXELS / 1e6,
    maxMemoryUsageInMB: MAX_JPEG_MEMORY_MB,
  });
  return { width, height, data };
}

function decodePng(image: Uint8Array): DecodedImage {
  const { width, height, data } = PNG.sync.read(essentialPng(image));
  const colors = new Uint8Array(width * height * 3);
  for (let from = 0, to = 0; to < colors.length; from += 4, to += 3) {
    colors[to] = data[from] ?? 0;
    colors[to + 1] = data[from + 1] ?? 0;
    colors[to + 2] = data[from + 2] ?? 0;
  }
  return { width, height, data: colors };
}

const KEPT_CHUNKS = new Set(['IHDR', 'PLTE', 'IDAT', 'IEND']);

/**
 * Keeps only the chunks that define the colours. Transparency is dropped, too: the decoder would blacken colours for it. The decoder bounds the
 * data that it unpacks, except for interlaced images, and takes missing pixels for black. So this function unpacks the data first, with a bound.
 * It refuses a second header: the decoder takes its size from the last header, and all bounds come from the first.
 */
function essentialPng(image: Uint8Array): Buffer {
  const view = new DataView(image.buffer, image.byteOffset, image.byteLength);
  // The signature has 8 bytes. A chunk has its length, its type, its content and a checksum: 12 bytes and the content.
  const keptChunks = [image.subarray(0, 8)];
  const packedData: Uint8Array[] = [];
  for (let at = 8; at + 12 <= image.length; ) {
    const end = at + 12 + view.getUint32(at);
    const type = String.fromCharCode(...image.subarray(at + 4, at + 8));
    if (end > image.length) throw new ImageFault('the PNG ends inside a chunk: the image is damaged');
    if (type === 'IHDR' && at > 8) throw new ImageFault('a PNG that tells its size twice: the image is damaged');
    if (KEPT_CHUNKS.has(type)) keptChunks.push(image.subarray(at, end));
    if (type === 'IDAT') packedData.push(image.subarray(at + 8, end - 4));
    at = type === 'IEND' ? image.length : end;
  }
  // The last byte of the header chunk's content.
  checkLength(packedData, unpackedBytes(view), view.getUint8(28) === 0);
  return Buffer.concat(keptChunks);
}

/** Most bytes that deflate unpacks from one. */
const MAX_DEFLATE_RATIO = 1032;

/** @throws ImageFault unless the data unpack to this many bytes, or to more where `mayBeLonger` */
function checkLength(packedData: readonly Uint8Array[], expected: number, mayBeLonger: boolean): void {
  const short = 'the PNG has fewer pixels than it says: the image is damaged';
  const packed = Buffer.concat(packedData);
  if (packed.length * MAX_DEFLATE_RATIO < expected) throw new ImageFault(short);
  let unpacked: number;
  try {
    unpacked = inflateSync(packed, { maxOutputLength: expected }).length;
  } catch (cause) {
    // Unpacked up to the bound.
    const isLong = (cause as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
    if (isLong && mayBeLonger) return;
    throw new ImageFault(
      isLong
        ? 'the PNG has more pixels than it says: the image is damaged'
        : 'the pixels of the PNG cannot be unpacked: the image is damaged, or ends early',
    );
  }
  if (unpacked < expected) throw new ImageFault(short);
}

/** Values per pixel, by colour type. */
const CHANNELS: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
/** The only pass of an image that is not interlaced. */
const WHOLE = [[0, 0, 1, 1]] as const;
/** Passes of Adam7: first column and row, and distance between columns and rows. */
const PASSES = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;

/**
 * Unpacked bytes of an image: a filter byte and the pixels of each row of each pass. Bytes 16, 20, 24, 25 and 28
 * of the file begin the width, the height, the bits of a value, the colour type and whether the image is interlaced.
 */
function unpackedBytes(view: DataView): number {
  const [width, height, depth] = [view.getUint32(16), view.getUint32(20), view.getUint8(24)];
  const bits = depth * (CHANNELS[view.getUint8(25)] ?? 4);
  const passes: readonly (readonly [number, number, number, number])[] = view.getUint8(28) === 0 ? WHOLE : PASSES;
  return passes.reduce((sum, [x, y, stepX, stepY]) => {
    const columns = Math.ceil((width - x) / stepX);
    const rows = Math.ceil((height - y) / stepY);
    return columns > 0 && rows > 0 ? sum + rows * (1 + Math.ceil((columns * bits) / 8)) : sum;
  }, 0);
}

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
