import type { InvocationEvent } from '../control.ts';
import { CODES, isErrorCode } from '../errors/codes.ts';
import { failureHint } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { openAiType } from '../errors/openai-names.ts';
import type { Room } from './bodies.ts';

export interface EventStreamOptions<T> {
  /** Of the request. `HEAD` is answered with the headers alone: nothing is asked of the source, and the stream is over at once. */
  readonly method: string;
  readonly source: AsyncIterable<T>;
  /** One item as a frame, its blank line included. */
  readonly frame: (item: T) => string;
  /** Whether an item ends the stream. A source that ends by itself before that is a fault, and the client is told. */
  readonly isTerminal: (item: T) => boolean;
  /** The frame that tells the client of a failure; an `error` event by default. */
  readonly errorFrame?: (error: GatewayError) => string;
  /** A comment is written when nothing else was for this long: it keeps proxies awake and finds clients that left. */
  readonly heartbeatMs: number;
  /**
   * Asked as often whether the client may still read. What it throws ends the stream when it is `unauthorized` or `tenant-suspended`; any other failure
   * to find out leaves it alone.
   */
  readonly recheck?: (() => Promise<void>) | undefined;
  /** Aborts when the client is gone, where the server below notices. */
  readonly client?: AbortSignal | undefined;
  /** Aborts when the process is about to end: the stream gets an error frame and can be taken up again elsewhere. */
  readonly shutdown?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the place that the stream takes among those that are open; it is given back at the end. */
  readonly keepOpen: (() => () => void) | undefined;
  /** Memory for large frames: a client that reads nothing holds one. Without room the stream ends, and can be taken up again. */
  readonly room: Room;
  /** Called once, when the client left before the end. */
  readonly onDisconnect: () => void;
  /** Called once when the stream is over, however it ended. */
  readonly onEnd: (error?: unknown) => void;
}

/** Smaller frames are bounded by the number of streams. */
const LARGE_FRAME_BYTES = 64 * 1024;
/** A frame and the event that it was made of. */
const HELD_FACTOR = 2;

const HEARTBEAT = new TextEncoder().encode(': heartbeat\n\n');

/**
 * A `text/event-stream` that never ends without its terminal item or an `error` frame as long as the client listens. Error frames are what
 * OpenAI-style clients take for errors: their data has an `error` object beside our own members. A frame that the gateway adds itself (the
 * store went away, the process stops) has no id, so `Last-Event-ID` still names the last real event.
 */
export function eventStreamResponse<T>(options: EventStreamOptions<T>): Response {
  const headers = {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    // Nginx and its like would collect the stream otherwise.
    'x-accel-buffering': 'no',
    ...options.headers,
  };
  if (options.method === 'HEAD') {
    // Hono would drop the body of a HEAD without cancelling it.
    options.keepOpen?.()();
    options.onEnd();
    return new Response(null, { headers });
  }
  return new Response(bodyOf(options), { headers });
}

function bodyOf<T>(options: EventStreamOptions<T>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const iterator = options.source[Symbol.asyncIterator]();
  const leave = options.keepOpen?.();
  let over = false;
  let quiet = false;
  let checking = false;
  let release: () => void = () => undefined;

  const end = (error?: unknown) => {
    over = true;
    release();
    leave?.();
    options.room.free();
    // Not awaited: the source may be waiting for its next item; its own signal ends it.
    iterator.return?.().catch(() => undefined);
    options.onEnd(error);
  };
  const gone = () => {
    if (over) return;
    end();
    options.onDisconnect();
  };
  const fail = (controller: ReadableStreamDefaultController<Uint8Array>, caught: unknown) => {
    if (over) return;
    const error = GatewayError.from(caught);
    end(error);
    controller.enqueue(encoder.encode((options.errorFrame ?? errorFrame)(error)));
    controller.close();
  };

  const recheck = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    if (checking) return;
    checking = true;
    try {
      await options.recheck?.();
    } catch (error) {
      if (isRevocation(error)) fail(controller, error);
    } finally {
      checking = false;
    }
  };

  return new ReadableStream<Uint8Array>({
    start(controller) {
      const heartbeat = setInterval(() => {
        if (quiet && (controller.desiredSize ?? 0) > 0) controller.enqueue(HEARTBEAT);
        quiet = true;
        void recheck(controller);
      }, options.heartbeatMs);
      const shutDown = () => fail(controller, shuttingDown());
      release = () => {
        clearInterval(heartbeat);
        options.shutdown?.removeEventListener('abort', shutDown);
        options.client?.removeEventListener('abort', gone);
      };
      options.shutdown?.addEventListener('abort', shutDown);
      options.client?.addEventListener('abort', gone);
      if (options.client?.aborted === true) gone();
      else if (options.shutdown?.aborted === true) shutDown();
    },
    async pull(controller) {
      try {
        // The client has taken the frame before.
        options.room.free();
        const next = await iterator.next();
        if (over) return;
        quiet = false;
        if (next.done === true) throw new GatewayError('internal', 'The stream ended before its outcome.');
        const frame = encoder.encode(options.frame(next.value));
        if (frame.byteLength > LARGE_FRAME_BYTES && !options.room.take(HELD_FACTOR * frame.byteLength)) {
          throw new GatewayError('gateway-busy', 'The gateway holds as many large events as it may for this tenant.');
        }
        controller.enqueue(frame);
        if (!options.isTerminal(next.value)) return;
        end();
        controller.close();
      } catch (caught) {
        fail(controller, caught);
      }
    },
    cancel: gone,
  });
}

/** Whether the client's key was removed or has expired, or its tenant was suspended. */
export function isRevocation(error: unknown): boolean {
  return error instanceof GatewayError && (error.code === 'unauthorized' || error.code === 'tenant-suspended');
}

/** One event of an invocation as a frame. */
export function invocationFrame(event: InvocationEvent): string {
  return `id: ${event.seq}\nevent: ${event.event}\ndata: ${event.event === 'error' ? withErrorObject(event.data) : event.data}\n\n`;
}

function shuttingDown(): GatewayError {
  return new GatewayError(
    'shutting-down',
    'The gateway is being stopped; what it streamed goes on and can be taken up again.',
  );
}

function errorFrame(error: GatewayError): string {
  const data = { code: error.code, message: error.message, hint: error.hint, resumable: isResumable(error) };
  return `event: error\ndata: ${withErrorObject(JSON.stringify(data))}\n\n`;
}

const RESUMABLE: ReadonlySet<string> = new Set([
  'store-unavailable',
  'shutting-down',
  'origin-unavailable',
  'gateway-busy',
]);

/** Whether the invocation itself may be well, so that the same stream can be asked for again. */
function isResumable(error: GatewayError): boolean {
  return RESUMABLE.has(error.code);
}

/** Adds what to do about it, and the `error` object that OpenAI-style clients look for. */
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
