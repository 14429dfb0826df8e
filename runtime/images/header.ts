/** Properties of an image, read from its first bytes. */
export interface ImageHeader {
  readonly format: 'png' | 'jpeg';
  /** Pixels of the displayed image, after turning. */
  readonly width: number;
  readonly height: number;
  /** EXIF's orientation, 1 to 8: 1 is upright, from 5 on width and height are exchanged. */
  readonly orientation: number;
}

/** Maximum bytes of an accepted image. */
export const MAX_IMAGE_BYTES = 8 * 1024 * 1024;
/** Maximum pixels of an accepted image. */
export const MAX_IMAGE_PIXELS = 16_000_000;
/** Maximum pixels of a side. Without this limit, an image one pixel high could cost as much as a square one of the same width. */
const MAX_IMAGE_SIDE = 16_384;

/** Maximum segments before the segment with a JPEG's size. Each has at most 64 KiB. */
const MAX_SEGMENTS = 1024;
const PNG_SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

/**
 * Reads format and size of a PNG or JPEG; ignores the bytes after the header.
 *
 * @throws ImageFault for other formats, for too many bytes, and for kinds of JPEG that this module does not decode
 */
export function readHeader(image: Uint8Array): ImageHeader {
  if (image.length > MAX_IMAGE_BYTES) {
    throw new ImageFault(`an image of ${image.length} bytes; ${MAX_IMAGE_BYTES} are the limit: make it smaller`);
  }
  if (PNG_SIGNATURE.every((byte, i) => image[i] === byte)) return pngHeader(image);
  if (image[0] === 0xff && image[1] === 0xd8) return jpegHeader(image);
  throw new ImageFault('neither a PNG nor a JPEG: convert the image to one of them');
}

/** The fault of an image of this size, or null. */
export function refuseSize({ width, height }: { readonly width: number; readonly height: number }): string | null {
  if (width < 1 || height < 1) return 'an image without pixels';
  if (width * height > MAX_IMAGE_PIXELS) {
    return `an image of ${width} × ${height} pixels; ${MAX_IMAGE_PIXELS} are the limit: make it smaller`;
  }
  if (width <= MAX_IMAGE_SIDE && height <= MAX_IMAGE_SIDE) return null;
  return `an image of ${width} × ${height} pixels; a side has at most ${MAX_IMAGE_SIDE}: cut it`;
}

/** @throws ImageFault when the image is not accepted */
export function checkImage(image: Uint8Array): ImageHeader {
  const header = readHeader(image);
  const refused = refuseSize(header);
  if (refused !== null) throw new ImageFault(refused);
  return header;
}

function viewOf(image: Uint8Array): DataView {
  return new DataView(image.buffer, image.byteOffset, image.byteLength);
}

function pngHeader(image: Uint8Array): ImageHeader {
  const view = viewOf(image);
  // The first chunk, from byte 8 to byte 33: the length of its content (13), its type (`IHDR` in ASCII), width, height, and more.
  if (image.length < 33 || view.getUint32(8) !== 13 || view.getUint32(12) !== 0x49484452) throw truncated('PNG');
  return { format: 'png', width: view.getUint32(16), height: view.getUint32(20), orientation: 1 };
}

function jpegHeader(image: Uint8Array): ImageHeader {
  const view = viewOf(image);
  let orientation = 1;
  let at = 2;
  for (let segments = 0; segments < MAX_SEGMENTS; segments++) {
    if (image[at] !== 0xff) throw truncated('JPEG');
    // Any number of fill bytes may precede a marker.
    while (image[at] === 0xff) at++;
    const marker = image[at] ?? 0;
    if (at + 3 > image.length) throw truncated('JPEG');
    const length = view.getUint16(at + 1);
    const from = at + 3;
    const end = at + 1 + length;
    // The scan (DA) or the end of the image (D9) comes before the size.
    if (length < 2 || marker === 0xda || marker === 0xd9) throw truncated('JPEG');
    if (isFrame(marker)) {
      if (from + 6 > image.length) throw truncated('JPEG');
      return frameHeader(view, from, marker, orientation);
    }
    // An APP1 segment (E1) may be EXIF's.
    if (marker === 0xe1 && end <= image.length) orientation = orientationOf(image.subarray(from, end)) ?? orientation;
    at = end;
  }
  throw new ImageFault(`a JPEG with more than ${MAX_SEGMENTS} segments before its size: save it anew`);
}

/** Start-of-frame markers: C0 to CF except DHT, JPG and DAC. */
function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function frameHeader(view: DataView, at: number, marker: number, orientation: number): ImageHeader {
  const depth = view.getUint8(at);
  const [height, width] = [view.getUint16(at + 1), view.getUint16(at + 3)];
  const components = view.getUint8(at + 5);
  const kinds = 'baseline and progressive ones of 8 bits, grey or in colour, are taken: convert it';
  if (marker > 0xc2) throw new ImageFault(`a lossless or arithmetic-coded JPEG; ${kinds}`);
  if (depth !== 8) throw new ImageFault(`a JPEG of ${depth} bits; ${kinds}`);
  if (components !== 1 && components !== 3)
    throw new ImageFault(`a JPEG of ${components} components (CMYK?); ${kinds}`);
  if (width === 0 || height === 0) throw new ImageFault(`a JPEG that does not say its size; ${kinds}`);
  const [shownWidth, shownHeight] = orientation >= 5 ? [height, width] : [width, height];
  return { format: 'jpeg', width: shownWidth, height: shownHeight, orientation };
}

/** The orientation (tag 0x0112) in the first directory of an EXIF segment; undefined when there is none. */
function orientationOf(segment: Uint8Array): number | undefined {
  if (!'Exif\0\0'.split('').every((letter, i) => segment[i] === letter.charCodeAt(0))) return undefined;
  const view = viewOf(segment.subarray(6));
  if (view.byteLength < 8) return undefined;
  const isLittleEndian = view.getUint16(0) === 0x4949;
  const directoryAt = view.getUint32(4, isLittleEndian);
  if (directoryAt + 2 > view.byteLength) return undefined;
  const entries = view.getUint16(directoryAt, isLittleEndian);
  for (let i = 0; i < entries; i++) {
    const entry = directoryAt + 2 + 12 * i;
    if (entry + 12 > view.byteLength) return undefined;
    if (view.getUint16(entry, isLittleEndian) !== 0x0112) continue;
    const value = view.getUint16(entry + 8, isLittleEndian);
    return value >= 1 && value <= 8 ? value : undefined;
  }
  return undefined;
}

function truncated(format: string): ImageFault {
  return new ImageFault(`a ${format} that ends or goes wrong before its size: the image is damaged`);
}

/** A fault of an image. The message says what is wrong and what to do; it becomes the text of an `invalid-argument`. */
export class ImageFault extends Error {
  override readonly name = 'ImageFault';
}
