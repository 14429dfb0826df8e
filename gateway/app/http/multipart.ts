import { GatewayError } from '../errors/gateway-error.ts';
import { type Body, ByteBuffer, type NextPiece } from './bodies.ts';

interface MultipartOptions {
  /** Maximum bytes of each part, by its name. Other parts are refused. */
  readonly limits: Readonly<Record<string, number>>;
  /** Makes the error for a part that passes its limit. */
  readonly tooLarge: (name: string, limitBytes: number) => GatewayError;
}

/** Maximum bytes of one part's headers, and of the preamble before the first part. */
const MAX_HEADER_BYTES = 8 * 1024;

/**
 * Reads the parts of a `multipart/form-data` body (RFC 7578), by name, while the body arrives. An oversized part is thus refused before the rest is
 * read, whereas `Request.formData` first reads the whole body into memory. Throws `malformed-request` for a body that breaks the format.
 */
export async function readMultipart(body: Body, options: MultipartOptions): Promise<Map<string, Uint8Array>> {
  return readParts(new Source(body.pieces()), boundaryOf(body), options);
}

async function readParts(
  source: Source,
  boundary: string,
  options: MultipartOptions,
): Promise<Map<string, Uint8Array>> {
  const parts = new Map<string, Uint8Array>();
  const delimiter = ascii(`\r\n--${boundary}`);
  // The delimiter begins with a line break, which the body need not have before its first boundary: prepend one.
  source.unread(ascii('\r\n'));
  await source.readUntil(delimiter, MAX_HEADER_BYTES, () =>
    malformedDeployment('The body does not begin with its boundary.'),
  );
  for (;;) {
    const end = await source.take(2);
    if (end === '--') return parts;
    if (end !== '\r\n') throw malformedDeployment('A boundary is followed by something else than a line break.');
    // An empty line ends the headers. Prepend a line break, so that a part without headers has such a line, too.
    source.unread(ascii('\r\n'));
    const header = await source.readUntil(ascii('\r\n\r\n'), MAX_HEADER_BYTES, () =>
      malformedDeployment('The headers of a part are too long.'),
    );
    const name = nameIn(new TextDecoder().decode(header));
    const limit = Object.hasOwn(options.limits, name) ? options.limits[name] : undefined;
    if (limit === undefined)
      throw malformedDeployment(
        `The part "${name.slice(0, 64)}" is not expected; send ${Object.keys(options.limits).join(' and ')}.`,
      );
    if (parts.has(name)) throw malformedDeployment(`The part "${name}" comes twice.`);
    parts.set(name, await source.readUntil(delimiter, limit, () => options.tooLarge(name, limit)));
  }
}

/** Reads a stream of bytes up to a delimiter. */
class Source {
  readonly #next: NextPiece;
  #unreadBytes: Uint8Array = new Uint8Array(0);

  constructor(next: NextPiece) {
    this.#next = next;
  }

  unread(bytes: Uint8Array): void {
    this.#unreadBytes = joinBytes(bytes, this.#unreadBytes);
  }

  /** Reads up to the delimiter and consumes it. Throws `tooLong()` once more than `limitBytes` came without it. */
  async readUntil(delimiter: Uint8Array, limitBytes: number, tooLong: () => GatewayError): Promise<Uint8Array> {
    const partBytes = new ByteBuffer();
    for (;;) {
      const delimiterIndex = indexOf(this.#unreadBytes, delimiter);
      const consumableLength =
        delimiterIndex >= 0 ? delimiterIndex : Math.max(0, this.#unreadBytes.byteLength - delimiter.byteLength + 1);
      if (partBytes.length + consumableLength > limitBytes) throw tooLong();
      partBytes.append(this.#unreadBytes.subarray(0, consumableLength));
      if (delimiterIndex >= 0) {
        this.#unreadBytes = this.#unreadBytes.subarray(delimiterIndex + delimiter.byteLength);
        return partBytes.bytes();
      }
      this.#unreadBytes = this.#unreadBytes.subarray(consumableLength);
      await this.#readMore();
    }
  }

  async take(count: number): Promise<string> {
    while (this.#unreadBytes.byteLength < count) await this.#readMore();
    const taken = new TextDecoder('latin1').decode(this.#unreadBytes.subarray(0, count));
    this.#unreadBytes = this.#unreadBytes.subarray(count);
    return taken;
  }

  async #readMore(): Promise<void> {
    const piece = await this.#next();
    if (piece === undefined) throw malformedDeployment('The body ends before its last boundary.');
    this.#unreadBytes = joinBytes(this.#unreadBytes, piece);
  }
}

/** First occurrence of `needle`, or -1. The engine's search for the first byte skips quickly over large binary parts. */
function indexOf(haystack: Uint8Array, needle: Uint8Array): number {
  const first = needle[0] ?? 0;
  const last = haystack.byteLength - needle.byteLength;
  search: for (let at = haystack.indexOf(first); at >= 0 && at <= last; at = haystack.indexOf(first, at + 1)) {
    for (let i = 1; i < needle.byteLength; i++) if (haystack[at + i] !== needle[i]) continue search;
    return at;
  }
  return -1;
}

function joinBytes(head: Uint8Array, tail: Uint8Array): Uint8Array {
  if (head.byteLength === 0) return tail;
  const both = new Uint8Array(head.byteLength + tail.byteLength);
  both.set(head);
  both.set(tail, head.byteLength);
  return both;
}

function boundaryOf({ contentType: header }: Body): string {
  if (!/^multipart\/form-data\s*;/i.test(header)) {
    throw new GatewayError('unsupported-media-type', 'A deployment is sent as multipart/form-data.', {
      hint: 'Send `Content-Type: multipart/form-data` with the parts `manifest` (JSON) and `component` (Wasm).',
    });
  }
  const match = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))/i.exec(header);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined) throw malformedDeployment('The Content-Type names no boundary.');
  return boundary;
}

/** The name of a part, from its headers. */
function nameIn(headers: string): string {
  const disposition = /^content-disposition:\s*form-data\s*;(.*)$/im.exec(headers)?.[1] ?? '';
  const match = /(?:^|;)\s*name=(?:"([^"]*)"|([^\s;"]+))/i.exec(disposition);
  const name = match?.[1] ?? match?.[2];
  if (name === undefined) throw malformedDeployment('A part has no name.');
  return name;
}

function ascii(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The error for a body that is not the multipart body of a deployment. */
export function malformedDeployment(message: string): GatewayError {
  return new GatewayError('malformed-request', message, {
    hint: 'Send multipart/form-data with the parts `manifest` (JSON) and `component` (Wasm), as `pie deploy` does.',
  });
}
