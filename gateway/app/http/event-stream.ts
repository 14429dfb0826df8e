import type { Feed, OpenFeed } from '#scheduler/invocations/feed.ts';
import type { InvocationEvent } from '../control.ts';
import { CODES, type ErrorCode, isErrorCode } from '../errors/codes.ts';
import { failureHint, GatewayError, openAiType } from '../errors/gateway-error.ts';
import { eventId } from '../invocations/event-id.ts';
import { download, LARGE_BYTES } from './answer.ts';
import type { Room } from './bodies.ts';

export interface EventStreamOptions<T> {
  /** The request's method. `HEAD` gets the headers alone: the source is never opened, and `onEnd` is called at once. */
  readonly method: string;
  readonly source: OpenFeed<T>;
  /** Formats one item as a frame, blank line included. */
  readonly frame: (item: T) => string;
  /** True for an item that ends the stream. When the source ends without such an item, an error frame reports this fault. */
  readonly isTerminal: (item: T) => boolean;
  /** Formats the frame that reports a failure; an `error` event by default. */
  readonly errorFrame?: (error: GatewayError) => string;
  /** Interval of the comment lines on a quiet stream. They keep proxies from closing it, and their writes detect departed clients. */
  readonly heartbeatMs: number;
  /**
   * Called at every heartbeat to check that the client may still read. `unauthorized` and `tenant-suspended` end the stream; any other
   * error leaves it open.
   */
  readonly recheck?: (() => Promise<void>) | undefined;
  /** Aborts when the HTTP server notices that the client is gone. */
  readonly client?: AbortSignal | undefined;
  /** Aborts when the process must end its streams: the client gets an error frame and can resume the stream elsewhere. */
  readonly shutdown?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the request's slot of open streams (see `AppEnv`), and returns the function that frees it. The stream calls that function at its end. */
  readonly keepOpen: (() => () => void) | undefined;
  /**
   * Memory for chunks above `LARGE_BYTES`. A client that takes nothing of such a chunk for 30 s loses the stream. When the memory is used up, an
   * error frame ends the stream, and the client can resume it.
   */
  readonly room: Room;
  /** Called once, after `onEnd`, when the client leaves before the end, or stalls. */
  readonly onDisconnect: () => void;
  /** Called once when the stream is over: with the error that ended the stream, or without one when it is complete or the client left. */
  readonly onEnd: (error?: unknown) => void;
}

/** A chunk takes no further frame once it has this many characters. */
const CHUNK_CHARACTERS = 16 * 1024;
/**
 * Bytes taken from `room` for each byte of a large chunk: the chunk and the items that it is made of are both in memory. Smaller chunks take no room,
 * since `StreamLimits` bounds their number.
 */
const HELD_FACTOR = 2;

const HEARTBEAT = new TextEncoder().encode(': heartbeat\n\n');

/**
 * A `text/event-stream` that ends with its terminal item or an error frame, unless the client leaves first. Waiting items share a chunk, up to
 * `CHUNK_CHARACTERS`, and thus one write to the client's connection. The data of the default error frame has an `error` object beside Pie's own
 * members: OpenAI-style clients recognise the error by that object. The frame has no id, so `Last-Event-ID` still names the last real event.
 */
export function eventStreamResponse<T>(options: EventStreamOptions<T>): Response {
  const headers = {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    // Without this header, nginx and similar proxies buffer the stream.
    'x-accel-buffering': 'no',
    ...options.headers,
  };
  if (options.method === 'HEAD') {
    // Make no stream: Hono would drop the body of a HEAD without cancelling it.
    const freeSlot = options.keepOpen?.();
    freeSlot?.();
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
    // 0 means no queue: a pull then means that the server has written the previous chunk. With a queue, the server may only have begun to write it.
    { highWaterMark: 0 },
  );
  return new Response(body, { headers });
}

/** Writes the items of a feed as frames to a `ReadableStream`. Takes further items from the feed only when the client has taken the chunk before. */
class EventStream<T> {
  readonly #options: EventStreamOptions<T>;
  readonly #encoder = new TextEncoder();
  readonly #feed: Feed<T>;
  readonly #freeSlot: (() => void) | undefined;
  readonly #onShutdown = () => this.#fail(shuttingDown());
  readonly #onClientGone = () => this.#depart();
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Items taken from the feed and not written yet. */
  #items: T[] = [];
  #heartbeat: ReturnType<typeof setInterval> | undefined;
  /** True when the client has taken all earlier chunks and waits for the next one. */
  #isClientWaiting = false;
  /** Reads the rest of a large chunk that the client has not taken completely. */
  #largeChunkReader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** The last chunk of the stream, which follows the large chunk. */
  #lastChunk: Uint8Array | undefined;
  /** True when no item was written since the last heartbeat. */
  #isQuiet = false;
  #isChecking = false;
  /** True once the source is closed. A large chunk and `#lastChunk` may still be on their way. */
  #isOver = false;

  constructor(options: EventStreamOptions<T>) {
    this.#options = options;
    this.#freeSlot = options.keepOpen?.();
    this.#feed = options.source(() => {
      if (this.#isClientWaiting) this.#write();
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
    if (this.#largeChunkReader !== undefined) return this.#passOn(this.#largeChunkReader);
    this.#isClientWaiting = true;
    this.#write();
  }

  cancel(): void {
    this.#depart();
  }

  /** Writes waiting items as one chunk. Writes nothing when none wait; the feed then calls again. */
  #write(): void {
    if (this.#isOver) return;
    try {
      const { text, isLast } = this.#nextFrames();
      // A text has at least as many bytes as characters. Take room for that many before encoding, since encoding megabytes costs milliseconds.
      const expectedBytes = text.length > LARGE_BYTES ? text.length : 0;
      this.#takeRoom(expectedBytes);
      const chunk = this.#encoder.encode(text);
      if (text !== '') this.#isQuiet = false;
      const isLarge = chunk.byteLength > LARGE_BYTES;
      if (isLarge) this.#takeRoom(chunk.byteLength - expectedBytes);
      if (isLast) this.#close(isLarge ? undefined : chunk);
      if (isLarge) this.#sendLarge(chunk);
      else if (!isLast && text !== '') this.#send(chunk);
    } catch (caught) {
      this.#fail(caught);
    }
  }

  /** The frames of the next chunk; an empty text when no item waits. */
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

  #takeRoom(bytes: number): void {
    if (bytes === 0 || this.#options.room.take(HELD_FACTOR * bytes)) return;
    // `free` gives back all room of the stream, and all of it is this chunk's: the client has taken the earlier chunks.
    this.#options.room.free();
    throw new GatewayError(
      'gateway-busy',
      'The large events that the gateway holds for this tenant have reached their limit.',
    );
  }

  #send(chunk: Uint8Array): void {
    this.#isClientWaiting = false;
    this.#controller?.enqueue(chunk);
  }

  /** Sends a chunk in pieces. Its memory counts until the client has taken the last piece. */
  #sendLarge(chunk: Uint8Array): void {
    this.#isClientWaiting = false;
    const chunkReader = download(chunk, () => this.#options.room.free()).getReader();
    chunkReader.closed.catch((stalled: unknown) => this.#onStall(stalled));
    this.#largeChunkReader = chunkReader;
    void this.#passOn(chunkReader);
  }

  /** Passes the next piece of a large chunk on to the client. */
  async #passOn(chunkReader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    try {
      const { done, value } = await chunkReader.read();
      if (done) this.#onLargeChunkTaken();
      else this.#controller?.enqueue(value);
    } catch {
      // The client stalled, which `#onStall` handles, or it has left.
    }
  }

  #onLargeChunkTaken(): void {
    this.#largeChunkReader = undefined;
    this.#isClientWaiting = true;
    if (this.#isOver) this.#finish(this.#lastChunk);
    else this.#write();
  }

  /**
   * Ends the stream with `lastChunk`, once the client has taken a large chunk that is on its way. Without `lastChunk`,
   * the caller sends a large chunk next, and that chunk is the last one.
   */
  #close(lastChunk: Uint8Array | undefined, error?: unknown): void {
    const canFinishNow = lastChunk !== undefined && this.#largeChunkReader === undefined;
    this.#end(error);
    if (canFinishNow) this.#finish(lastChunk);
    else this.#lastChunk = lastChunk;
  }

  #finish(lastChunk: Uint8Array | undefined): void {
    if (lastChunk && lastChunk.byteLength > 0) this.#controller?.enqueue(lastChunk);
    this.#controller?.close();
  }

  /** Called when the client has taken nothing of a large chunk for too long. */
  #onStall(error: unknown): void {
    this.#controller?.error(error);
    if (this.#isOver) return;
    this.#end(error);
    this.#options.onDisconnect();
  }

  /** Called at every heartbeat. */
  #beat(): void {
    if (this.#isQuiet && this.#isClientWaiting) this.#send(HEARTBEAT);
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

  /** Ends the stream with an error frame. */
  #fail(caught: unknown): void {
    if (this.#isOver) return;
    const error = GatewayError.from(caught);
    this.#close(this.#encoder.encode((this.#options.errorFrame ?? errorFrame)(error)), error);
  }

  /** Called when the client has left. */
  #depart(): void {
    void this.#largeChunkReader?.cancel();
    if (this.#isOver) return;
    this.#end();
    this.#options.onDisconnect();
  }

  /** Frees all that the stream holds, except a large chunk on its way and the last chunk. */
  #end(error?: unknown): void {
    this.#isOver = true;
    this.#items = [];
    clearInterval(this.#heartbeat);
    this.#options.shutdown?.removeEventListener('abort', this.#onShutdown);
    this.#options.client?.removeEventListener('abort', this.#onClientGone);
    this.#freeSlot?.();
    this.#feed.close();
    this.#options.onEnd(error);
  }
}

/** True when the client's key was removed or has expired, or its tenant was suspended. */
export function isRevocation(error: unknown): boolean {
  return error instanceof GatewayError && (error.code === 'unauthorized' || error.code === 'tenant-suspended');
}

/** Formats one event of an invocation as a frame. All followers of an invocation share the frame of a large event. */
export function invocationFrame(event: InvocationEvent): string {
  const known = largeFrames.get(event);
  if (known !== undefined) return known;
  const data = event.event === 'error' ? withErrorObject(event.data) : event.data;
  const frame = `id: ${eventId(event)}\nevent: ${event.event}\n${dataLines(data)}\n\n`;
  if (frame.length > LARGE_BYTES) largeFrames.set(event, frame);
  return frame;
}

/** Frames of events above `LARGE_BYTES`, kept while a follower holds the event. */
const largeFrames = new WeakMap<InvocationEvent, string>();

/** The `data` lines of a frame, one for each line of the text: a function may write its result with line breaks, and the gateway keeps them. */
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

/** True when the fault lies outside the invocation, so that the client can request the same stream again. */
function isResumable(error: GatewayError): boolean {
  return RESUMABLE.has(error.code);
}

/** Fills in the `code`, `message` and `hint` of an error's data, and adds the `error` object that OpenAI-style clients look for. */
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

/** A source that gives items when it is asked for them, such as an iterator. */
export interface PulledSource<T> {
  /** Waits for the next items. Resolves to at least one item, or to null after the last one. Calls do not overlap. */
  next(): Promise<T[] | null>;
  /** Stops the source. A pending `next` may stay pending. */
  close(): void;
}

/** Makes a feed of a source. The feed asks the source only when its reader has taken all earlier items. */
export function pulledFeed<T>(open: () => PulledSource<T>): OpenFeed<T> {
  return (ready) => new PulledFeed(open(), ready);
}

/** Makes a feed of an iterable's items. */
export function feedOf<T>(iterable: AsyncIterable<T>): OpenFeed<T> {
  return pulledFeed(() => {
    const iterator = iterable[Symbol.asyncIterator]();
    return {
      async next() {
        const { done, value } = await iterator.next();
        return done === true ? null : [value];
      },
      close() {
        // Do not wait for the return: the iterable may be waiting for its next item, and its own signal ends that wait.
        iterator.return?.().catch(() => undefined);
      },
    };
  });
}

class PulledFeed<T> implements Feed<T> {
  readonly #source: PulledSource<T>;
  readonly #ready: () => void;
  #items: T[] | null = [];
  #failure: { readonly error: unknown } | null = null;
  #isAsking = false;
  #isClosed = false;

  constructor(source: PulledSource<T>, ready: () => void) {
    this.#source = source;
    this.#ready = ready;
  }

  take(): T[] | null {
    if (this.#failure) throw this.#failure.error;
    const items = this.#items;
    if (items === null || this.#isClosed) return null;
    this.#items = [];
    if (items.length === 0) void this.#ask();
    return items;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#source.close();
  }

  async #ask(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    try {
      this.#items = await this.#source.next();
    } catch (error) {
      this.#failure = { error };
    }
    this.#isAsking = false;
    if (!this.#isClosed) this.#ready();
  }
}
