import type { InvocationEvent } from '../control.ts';
import { CODES, isErrorCode } from '../errors/codes.ts';
import { failureHint } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { openAiType } from '../errors/openai-names.ts';
import type { Room } from './bodies.ts';

export interface EventStreamOptions<T> {
  /** The request's method. The gateway answers `HEAD` with headers alone, reads nothing from the source and ends the stream. */
  readonly method: string;
  readonly source: AsyncIterable<T>;
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
  /** Memory for large frames: a client that reads nothing holds one. Without room the stream ends, and the client can resume it. */
  readonly room: Room;
  /** Called once when the client leaves before the end. */
  readonly onDisconnect: () => void;
  /** Called once when the stream is over, for whatever reason. */
  readonly onEnd: (error?: unknown) => void;
}

/** Only larger frames take memory from `room`; the limit on streams bounds smaller ones. */
const LARGE_FRAME_BYTES = 64 * 1024;
/** The frame and the event behind it are both in memory. */
const HELD_FACTOR = 2;

const HEARTBEAT = new TextEncoder().encode(': heartbeat\n\n');

/**
 * A `text/event-stream` that always ends with its terminal item or an `error` frame while the client listens. OpenAI-style clients
 * recognise error frames: their data has an `error` object beside Pie's own members. A frame that the gateway adds itself (the store
 * went away, the process stops) has no id, so `Last-Event-ID` still names the last real event.
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
    // Not awaited: the source may be waiting for its next item, and ends by its own signal.
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
        // A pull means that the client took the previous frame.
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

/** True when the client's key was removed or has expired, or its tenant was suspended. */
export function isRevocation(error: unknown): boolean {
  return error instanceof GatewayError && (error.code === 'unauthorized' || error.code === 'tenant-suspended');
}

/** Formats one event of an invocation as a frame. */
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
