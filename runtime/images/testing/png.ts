import { crc32 } from 'node:zlib';

/** Bytes of the signature and the header. */
export const PNG_HEADER_BYTES = 33;

function chunk(type: string, content: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type), content]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(content.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** A PNG with this header and image data, which need not be valid. */
export function png(
  width: number,
  height: number,
  data: Uint8Array,
  { depth = 8, color = 2, interlace = 0 } = {},
): Uint8Array {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([depth, color, 0, 0, interlace], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const chunks = [chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', new Uint8Array())];
  return new Uint8Array(Buffer.concat([signature, ...chunks]));
}
