/** One frame of an event stream, unparsed. */
export interface Frame {
  /** The last id received so far; empty when there was none. */
  readonly id: string;
  /** True when this frame itself carried the id. */
  readonly hasId: boolean;
  readonly event: string;
  readonly data: string;
}

/** Longest frame in memory; the platform's largest message is 1 MiB before base64 and JSON escapes. */
const MAX_FRAME_CHARACTERS = 16 * 1024 * 1024;

/** Codes of the characters that end a line. */
const LF = 10;
const CR = 13;

/** Splits the text of an event stream (WHATWG, `text/event-stream`) into frames, across chunk boundaries. */
export class FrameParser {
  #pendingText = '';
  /** Characters of `#pendingText` that are known to hold no line end. */
  #searchedLength = 0;
  #id = '';
  #hasId = false;
  #event = '';
  #data: string[] = [];
  #dataCharacters = 0;

  /** Returns the frames that this chunk completes. Throws `RangeError` for a frame past the limit. */
  push(text: string): Frame[] {
    const frames: Frame[] = [];
    const buffer = this.#pendingText + text;
    let lineStart = 0;
    let searchFrom = this.#searchedLength;
    for (;;) {
      const end = lineEnd(buffer, searchFrom);
      if (end === null) break;
      this.#addLine(buffer.slice(lineStart, end.at), frames);
      lineStart = end.next;
      searchFrom = lineStart;
    }
    this.#pendingText = buffer.slice(lineStart);
    // Search the last character again: a carriage return at the end of a chunk becomes a line end only with the next chunk.
    this.#searchedLength = Math.max(0, this.#pendingText.length - 1);
    if (this.#pendingText.length + this.#dataCharacters > MAX_FRAME_CHARACTERS)
      throw new RangeError('A frame of the event stream is too long.');
    return frames;
  }

  #addLine(line: string, frames: Frame[]): void {
    if (line === '') {
      if (this.#data.length > 0) {
        frames.push({
          id: this.#id,
          hasId: this.#hasId,
          event: this.#event === '' ? 'message' : this.#event,
          data: this.#data.join('\n'),
        });
      }
      this.#data = [];
      this.#event = '';
      this.#hasId = false;
      this.#dataCharacters = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'data') {
      this.#data.push(value);
      // The line break counts, too: empty lines must not add up without a bound.
      this.#dataCharacters += value.length + 1;
    } else if (field === 'event') this.#event = value;
    else if (field === 'id' && !value.includes('\0')) {
      this.#id = value;
      this.#hasId = true;
    }
  }
}

/** The first line end (LF, CR or CRLF) from `from` on; null when there is none. A final CR does not count: it may be half of a CRLF. */
function lineEnd(buffer: string, from: number): { at: number; next: number } | null {
  for (let at = from; at < buffer.length; at++) {
    const character = buffer.charCodeAt(at);
    if (character === LF) return { at, next: at + 1 };
    if (character !== CR) continue;
    if (at + 1 === buffer.length) return null;
    return { at, next: buffer.charCodeAt(at + 1) === LF ? at + 2 : at + 1 };
  }
  return null;
}

interface FrameOptions {
  /** The stream fails when nothing, not even a heartbeat, arrives for this long. */
  readonly idleTimeoutMs: number;
  /** When this signal aborts, the stream fails with the signal's reason, even if the connection hangs. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The frames of a response. Errors of `read`: `TimeoutError` (DOMException) when the stream stays silent, the signal's reason, and any
 * error of the connection.
 */
export class FrameStream {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #signal: AbortSignal | undefined;
  readonly #decoder = new TextDecoder();
  readonly #parser = new FrameParser();
  readonly #idleTimeoutMs: number;
  readonly #abort = () => this.#fail(this.#signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Start of the pending read; null while the caller asks for nothing. */
  #askedAt: number | null = null;
  #failure: { readonly error: unknown } | null = null;
  #reject: ((error: unknown) => void) | undefined;

  constructor(body: ReadableStream<Uint8Array>, { idleTimeoutMs, signal }: FrameOptions) {
    this.#reader = body.getReader();
    this.#idleTimeoutMs = idleTimeoutMs;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#abort, { once: true });
    if (signal?.aborted) this.#abort();
  }

  /** The next frames, at least one; null at the end of the stream. The caller judges whether the stream was complete. Calls must not overlap. */
  async read(): Promise<Frame[] | null> {
    for (;;) {
      // Silence counts only while the caller waits: bytes that a slow caller has not asked for are not missing.
      this.#askedAt = performance.now();
      if (this.#timer === undefined) this.#watch(this.#idleTimeoutMs);
      const chunk = await this.#readChunk();
      this.#askedAt = null;
      if (chunk === null) return null;
      const frames = this.#parser.push(this.#decoder.decode(chunk, { stream: true }));
      if (frames.length > 0) return frames;
    }
  }

  /** Cancels the response's body. */
  close(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#abort);
    // A failed stream cannot be cancelled: ignore the error.
    this.#reader.cancel().catch(() => undefined);
  }

  #readChunk(): Promise<Uint8Array | null> {
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      if (this.#failure) reject(this.#failure.error);
      else this.#reader.read().then(({ done, value }) => resolve(done ? null : value), reject);
    });
  }

  /** One timer serves all reads. When it fires during a later read than the one that started it, it starts again for the rest of that read's time. */
  #watch(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#askedAt === null) return;
      const remainingMs = this.#askedAt + this.#idleTimeoutMs - performance.now();
      if (remainingMs > 0) this.#watch(remainingMs);
      else this.#fail(new DOMException(`The stream was silent for ${this.#idleTimeoutMs} ms.`, 'TimeoutError'));
    }, ms);
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#reject?.(error);
  }
}

/** The frames of a response one by one. Cancels the body when the caller stops early. Throws the errors of `FrameStream.read`. */
export async function* readFrames(body: ReadableStream<Uint8Array>, options: FrameOptions): AsyncGenerator<Frame> {
  const stream = new FrameStream(body, options);
  try {
    for (let frames = await stream.read(); frames !== null; frames = await stream.read()) yield* frames;
  } finally {
    stream.close();
  }
}
