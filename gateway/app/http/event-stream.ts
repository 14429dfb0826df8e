import type { Feed, OpenFeed } from '#scheduler/invocations/feed.ts';
import type { InvocationEvent } from '../control.ts';
import { CODES, type ErrorCode, isErrorCode } from '../errors/codes.ts';
import { failureHint } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { openAiType } from '../errors/openai-names.ts';
import { eventId } from '../invocations/event-id.ts';
import { LARGE_BYTES } from './answer.ts';
import type { Room } from './bodies.ts';
import { download } from './download.ts';

export interface EventStreamOptions<T> {
  /** The request's method. The gateway answers `HEAD` with headers alone, reads nothing from the source and ends the stream. */
  readonly method: string;
  readonly source: OpenFeed<T>;
  /** Formats one item as a frame with its blank line. */
  readonly frame: (item: T) => string;
  /** True when an item ends the stream. A source that ends without one is a fault, which an error frame reports. */
  readonly isTerminal: (item: T) => boolean;
  /** Formats the frame that reports a failure; an `error` event by default. */
  readonly errorFrame?: (error: GatewayError) => string;
  /** Interval of comments on a quiet stream: they keep proxies from closing it and detect departed clients. */
  readonly heartbeatMs: number;
  /**
   * Called at every heartbeat to check that the client may still read. `unauthorized` and `tenant-suspended` end the stream; any other
   * error leaves it open.
   */
  readonly recheck?: (() => Promise<void>) | undefined;
  /** Aborts when the client is gone, if the HTTP server notices. */
  readonly client?: AbortSignal | undefined;
  /** Aborts when the process is about to end: the client gets an error frame and can resume the stream elsewhere. */
  readonly shutdown?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the stream's slot; the stream frees it at its end. */
  readonly keepOpen: (() => () => void) | undefined;
  /**
   * Memory for large frames. A client that takes nothing of a large frame for 30 s loses the stream. Without room the stream ends, and the client can
   * resume it.
   */
  readonly room: Room;
  /** Called once when the client leaves before the end. */
  readonly onDisconnect: () => void;
  /** Called once when the stream is over, for whatever reason. */
  readonly onEnd: (error?: unknown) => void;
}

/** A chunk takes no further frame once it has this many characters. */
const CHUNK_CHARACTERS = 16 * 1024;
/** A large chunk and the events that it is made of are both in memory. Smaller chunks do not count: the limit on streams bounds them. */
const HELD_FACTOR = 2;

const HEARTBEAT = new TextEncoder().encode(': heartbeat\n\n');

/**
 * A `text/event-stream` that always ends with its terminal item or an `error` frame while the client listens. Items that wait together are
 * one chunk, and so one write to the client's connection. OpenAI-style clients recognise error frames: their data has an `error` object
 * beside Pie's own members. A frame that the gateway adds itself (the store went away, the process stops) has no id, so `Last-Event-ID`
 * still names the last real event.
 */
export function eventStreamResponse<T>(options: EventStreamOptions<T>): Response {
  const headers = {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    // Without it nginx and similar proxies buffer the stream.
    'x-accel-buffering': 'no',
    ...options.headers,
  };
  if (options.method === 'HEAD') {
    // Hono would drop the body of a HEAD without cancelling it.
    options.keepOpen?.()();
    options.onEnd();
    return new Response(null, { headers });
  }
  const stream = new EventStream(options);
  const body = new ReadableStream<Uint8Array>(
    {
      start: (controller) => stream.start(controller),
      pull: () => stream.pull(),
      cancel: () => stream.cancel(),
    },
    // Without a queue, a pull means that the server has written the previous chunk; with one, that the server has begun to write it.
    { highWaterMark: 0 },
  );
  return new Response(body, { headers });
}

/** Writes the frames of a feed to a `ReadableStream`. Takes from the feed only what the client takes. */
class EventStream<T> {
  readonly #options: EventStreamOptions<T>;
  readonly #encoder = new TextEncoder();
  readonly #feed: Feed<T>;
  readonly #leave: (() => void) | undefined;
  readonly #onShutdown = () => this.#fail(shuttingDown());
  readonly #onClientGone = () => this.#depart();
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Items that were taken and not written. */
  #items: T[] = [];
  #heartbeat: ReturnType<typeof setInterval> | undefined;
  /** True when the client has taken all earlier chunks. */
  #isAsked = false;
  /** The rest of a large chunk, which the client has not taken yet. */
  #chunkReader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** The last chunk of the stream, which follows `#chunkReader`. */
  #lastChunk: Uint8Array | undefined;
  #isQuiet = false;
  #isChecking = false;
  #isOver = false;

  constructor(options: EventStreamOptions<T>) {
    this.#options = options;
    this.#leave = options.keepOpen?.();
    this.#feed = options.source(() => {
      if (this.#isAsked) this.#write();
    });
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    const { heartbeatMs, shutdown, client } = this.#options;
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatMs);
    shutdown?.addEventListener('abort', this.#onShutdown);
    client?.addEventListener('abort', this.#onClientGone);
    if (client?.aborted === true) this.#depart();
    else if (shutdown?.aborted === true) this.#onShutdown();
  }

  pull(): Promise<void> | void {
    if (this.#chunkReader !== undefined) return this.#passOn(this.#chunkReader);
    this.#isAsked = true;
    this.#write();
  }

  cancel(): void {
    this.#depart();
  }

  /** Writes the items that wait as one chunk, up to its bound. */
  #write(): void {
    if (this.#isOver) return;
    try {
      const { text, isLast } = this.#nextFrames();
      const chunk = this.#encoder.encode(text);
      const isLarge = this.#hold(chunk);
      if (isLast) this.#close(isLarge ? undefined : chunk);
      if (isLarge) this.#sendLarge(chunk);
      else if (!isLast && text !== '') this.#send(chunk);
    } catch (caught) {
      this.#fail(caught);
    }
  }

  /** The frames of the next chunk; empty when no item waits. */
  #nextFrames(): { readonly text: string; readonly isLast: boolean } {
    const { frame, isTerminal } = this.#options;
    let text = '';
    while (text.length < CHUNK_CHARACTERS) {
      if (this.#items.length === 0 && text === '') this.#items = this.#takeItems();
      const [item] = this.#items.splice(0, 1);
      if (item === undefined) break;
      text += frame(item);
      if (isTerminal(item)) return { text, isLast: true };
    }
    return { text, isLast: false };
  }

  #takeItems(): T[] {
    const items = this.#feed.take();
    if (items === null) throw new GatewayError('internal', 'The stream ended before its outcome.');
    return items;
  }

  /** Takes memory for a large chunk; returns true for one. */
  #hold({ byteLength }: Uint8Array): boolean {
    if (byteLength > 0) this.#isQuiet = false;
    if (byteLength <= LARGE_BYTES) return false;
    if (!this.#options.room.take(HELD_FACTOR * byteLength))
      throw new GatewayError(
        'gateway-busy',
        'The large events that the gateway holds for this tenant have reached their limit.',
      );
    return true;
  }

  #send(chunk: Uint8Array): void {
    this.#isAsked = false;
    this.#controller?.enqueue(chunk);
  }

  /** Sends a chunk in pieces. Its memory counts until the client has taken the last piece. */
  #sendLarge(chunk: Uint8Array): void {
    this.#isAsked = false;
    const chunkReader = download(chunk, () => this.#options.room.free()).getReader();
    chunkReader.closed.catch((stalled: unknown) => this.#stall(stalled));
    this.#chunkReader = chunkReader;
    void this.#passOn(chunkReader);
  }

  async #passOn(chunkReader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    try {
      const { done, value } = await chunkReader.read();
      if (done) this.#goOn();
      else this.#controller?.enqueue(value);
    } catch {
      // The stream has failed with the same error, or the client is gone.
    }
  }

  /** The client has taken a large chunk. */
  #goOn(): void {
    this.#chunkReader = undefined;
    this.#isAsked = true;
    if (this.#isOver) this.#finish(this.#lastChunk);
    else this.#write();
  }

  /** Ends the stream with `lastChunk`, behind a large chunk that is on its way. `lastChunk` is undefined when the large chunk is the last. */
  #close(lastChunk: Uint8Array | undefined, error?: unknown): void {
    const canFinishNow = lastChunk !== undefined && this.#chunkReader === undefined;
    this.#end(error);
    if (canFinishNow) this.#finish(lastChunk);
    else this.#lastChunk = lastChunk;
  }

  #finish(lastChunk: Uint8Array | undefined): void {
    if (lastChunk && lastChunk.byteLength > 0) this.#controller?.enqueue(lastChunk);
    this.#controller?.close();
  }

  /** The client has taken nothing of a large chunk for too long. */
  #stall(error: unknown): void {
    this.#controller?.error(error);
    if (this.#isOver) return;
    this.#end(error);
    this.#options.onDisconnect();
  }

  #beat(): void {
    if (this.#isQuiet && this.#isAsked) this.#send(HEARTBEAT);
    this.#isQuiet = true;
    void this.#recheck();
  }

  async #recheck(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    try {
      await this.#options.recheck?.();
    } catch (error) {
      if (isRevocation(error)) this.#fail(error);
    } finally {
      this.#isChecking = false;
    }
  }

  #fail(caught: unknown): void {
    if (this.#isOver) return;
    const error = GatewayError.from(caught);
    this.#close(this.#encoder.encode((this.#options.errorFrame ?? errorFrame)(error)), error);
  }

  #depart(): void {
    void this.#chunkReader?.cancel();
    if (this.#isOver) return;
    this.#end();
    this.#options.onDisconnect();
  }

  #end(error?: unknown): void {
    this.#isOver = true;
    this.#items = [];
    clearInterval(this.#heartbeat);
    this.#options.shutdown?.removeEventListener('abort', this.#onShutdown);
    this.#options.client?.removeEventListener('abort', this.#onClientGone);
    this.#leave?.();
    this.#feed.close();
    this.#options.onEnd(error);
  }
}

/** True when the client's key was removed or has expired, or its tenant was suspended. */
export function isRevocation(error: unknown): boolean {
  return error instanceof GatewayError && (error.code === 'unauthorized' || error.code === 'tenant-suspended');
}

/** Formats one event of an invocation as a frame. */
export function invocationFrame(event: InvocationEvent): string {
  const data = event.event === 'error' ? withErrorObject(event.data) : event.data;
  return `id: ${eventId(event)}\nevent: ${event.event}\n${dataLines(data)}\n\n`;
}

/** The lines `data` of a frame. A function may write its JSON with line breaks, and the gateway passes a result on as it was written. */
export function dataLines(text: string): string {
  return `data: ${text.replace(/\r\n?|\n/g, '\ndata: ')}`;
}

function shuttingDown(): GatewayError {
  return new GatewayError(
    'shutting-down',
    'The gateway is shutting down. The invocation continues, and the stream can be resumed.',
  );
}

function errorFrame(error: GatewayError): string {
  const data = { code: error.code, message: error.message, hint: error.hint, resumable: isResumable(error) };
  return `event: error\ndata: ${withErrorObject(JSON.stringify(data))}\n\n`;
}

const RESUMABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'store-unavailable',
  'shutting-down',
  'origin-unavailable',
  'gateway-busy',
  'too-many-requests',
]);

/** True when the invocation itself may be well, so that the client can request the same stream again. */
function isResumable(error: GatewayError): boolean {
  return RESUMABLE.has(error.code);
}

/** Adds a hint, and the `error` object that OpenAI-style clients look for. */
function withErrorObject(data: string): string {
  const parsed: unknown = JSON.parse(data);
  const members: { code?: unknown; message?: unknown; hint?: unknown; cause?: unknown } =
    typeof parsed === 'object' && parsed !== null ? parsed : {};
  const code = isErrorCode(members.code) ? members.code : 'internal';
  const message = typeof members.message === 'string' ? members.message : CODES[code].title;
  const hint = typeof members.hint === 'string' ? members.hint : failureHint(code, members.cause);
  const error = { message, type: openAiType(CODES[code].status), code };
  return JSON.stringify({ ...members, code, message, hint, error });
}
