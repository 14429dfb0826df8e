import type { Context } from 'hono';
import { Items } from '#scheduler/invocations/feed.ts';
import type { Position } from '#scheduler/invocations/types.ts';
import { type AppEnv, type AppSettings, inBackground } from '../context.ts';
import type { Call, ControlPlane, HeldInvocation, InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint, GatewayError, RETRYABLE, retryAfterHeaders } from '../errors/gateway-error.ts';
import { textAnswer } from '../http/answer.ts';
import type { CountedRoom } from '../http/bodies.ts';
import { type EventStreamOptions, eventStreamResponse, invocationFrame } from '../http/event-stream.ts';
import { jsonWithOutput, resultIn } from '../http/json.ts';
import { type Preferences, preferenceApplied } from '../http/request-options.ts';
import { pause } from '../pause.ts';
import type { Outcome } from '../schemas/invocations.ts';
import { BEGINNING } from './event-id.ts';

/** Time limit of one attempt to cancel an invocation whose client has left. */
const ATTEMPT_MS = 10_000;
/** Time for which the gateway repeats failed attempts: the default wall time of a function. In workerd, background work stops after 30 s. */
const CANCEL_MS = 300_000;
/** Pause before the second attempt. Each further pause is twice as long, up to `LONGEST_PAUSE_MS`. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

interface AnswerOptions {
  /** True to cancel the invocation when its client leaves. */
  readonly cancelOnDisconnect?: boolean;
  /** True when an earlier request with the same idempotency key made the invocation. */
  readonly replayed?: boolean;
  /** True when the caller cancels the invocation after any error. A client may then retry by itself: no two invocations run side by side. */
  readonly cancelsOnError?: boolean;
}

/** The parts of an event stream that depend on its items, with handlers for an early end of the stream. */
interface Streamed<T>
  extends Pick<EventStreamOptions<T>, 'source' | 'frame' | 'isTerminal' | 'errorFrame' | 'headers' | 'onDisconnect'> {
  /** Called once when the stream ends with an error. */
  readonly onCut?: (error: unknown) => void;
}

/** Answers a client about an invocation in three ways: at once (`accepted`), as a stream, or with the outcome. */
export class Responder {
  readonly #control: ControlPlane;
  readonly #settings: AppSettings;

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#settings = settings;
  }

  /** Answers 202 with the address of the invocation. `waitMs` is the time for which the request has waited for the outcome, if it asked for that. */
  accepted(
    c: Context<AppEnv>,
    invocation: HeldInvocation,
    options: AnswerOptions,
    waitMs: number | null = null,
  ): Response {
    return jsonResponse(c, invocation, 202, {
      ...headersOf(invocation.id, options, { respondAsync: true, waitMs }),
      location: addressOf(invocation.id),
    });
  }

  /** Streams the events after `after`. When the client leaves, the invocation keeps running unless `options.cancelOnDisconnect` is true. */
  stream(c: Context<AppEnv>, call: Call, id: string, after: Position, options: AnswerOptions): Response {
    return this.streamItems(c, call, id, {
      source: this.#control.events(call, id, after),
      frame: invocationFrame,
      isTerminal: ({ event }) => event === 'result' || event === 'error',
      headers: headersOf(id, options),
      onDisconnect: () => {
        if (options.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
      },
    });
  }

  /** Streams items about an invocation to the client of a request. */
  streamItems<T>(c: Context<AppEnv>, call: Call, id: string, { onCut, ...streamed }: Streamed<T>): Response {
    const { bodies, heartbeatMs, shutdown, log } = this.#settings;
    return eventStreamResponse({
      ...streamed,
      method: c.req.method,
      heartbeatMs,
      recheck: c.get('recheck'),
      keepOpen: c.get('keepOpen'),
      room: bodies.roomFor(call.principal.tenant),
      client: call.signal,
      shutdown,
      onEnd: (error) => {
        if (error === undefined) return;
        onCut?.(error);
        log.warn({ requestId: call.requestId, invocation: id, error }, 'a stream was cut');
      },
    });
  }

  /** Waits for the outcome and answers with it. Throws the invocation's failure. */
  async outcome(c: Context<AppEnv>, call: Call, id: string, options: AnswerOptions): Promise<Response> {
    const outcome = await this.follow(c, call, id, options);
    return outcome === null
      ? clientClosedRequest()
      : outcomeAnswer(c, id, jsonWithOutput(outcome), headersOf(id, options));
  }

  /** Answers with the outcome if it comes within `waitMs`, else 202 with the address of the invocation. Throws the invocation's failure. */
  async outcomeWithin(
    c: Context<AppEnv>,
    call: Call,
    id: string,
    waitMs: number,
    options: AnswerOptions,
  ): Promise<Response> {
    const waitLimit = new AbortController();
    const timer = setTimeout(() => waitLimit.abort(), waitMs);
    try {
      const limitedCall = { ...call, signal: AbortSignal.any([call.signal, waitLimit.signal]) };
      // Do not pass `cancelOnDisconnect`: with it, `follow` would cancel the invocation also when the wait limit aborts the signal.
      const outcome = await this.follow(c, limitedCall, id, { replayed: options.replayed === true });
      if (outcome !== null) return outcomeAnswer(c, id, jsonWithOutput(outcome), headersOf(id, options, { waitMs }));
    } finally {
      clearTimeout(timer);
    }
    if (call.signal.aborted) {
      if (options.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
      return clientClosedRequest();
    }
    const state = await this.#control.invocation(call, id);
    if (state === null) throw new GatewayError('unknown-invocation', `There is no invocation "${id}" any more.`);
    return this.accepted(c, state, options, waitMs);
  }

  /** Waits for the outcome; null when `call.signal` aborts first. Throws the invocation's failure. */
  async follow(c: Context<AppEnv>, call: Call, id: string, options: AnswerOptions): Promise<HeldOutcome | null> {
    const { shutdown, limits } = this.#settings;
    const headers = headersOf(id, options);
    const signal = shutdown === undefined ? call.signal : AbortSignal.any([call.signal, shutdown]);
    const room = this.#settings.bodies.roomFor(call.principal.tenant);
    try {
      const events = new Items(this.#control.events(call, id, BEGINNING), signal);
      return await collectOutcome(events, id, limits.collectedBytes, room);
    } catch (caught) {
      if (call.signal.aborted) {
        if (options.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
        return null;
      }
      const error =
        shutdown?.aborted === true
          ? new GatewayError('shutting-down', 'The gateway is being stopped; the invocation goes on.')
          : GatewayError.from(caught);
      // Every error names the invocation, so that the client can find it.
      throw new GatewayError(error.code, error.message, {
        hint: error.hint,
        field: error.field,
        members: { ...error.members, invocation: id },
        headers: {
          ...error.headers,
          ...headers,
          ...(RETRYABLE.has(error.code) && { 'x-should-retry': String(options.cancelsOnError || hasKey(c)) }),
        },
        cause: error.cause,
      });
    } finally {
      room.free();
    }
  }

  /** Cancels an invocation whose client has left, in the background. */
  cancelAbandoned(c: Context<AppEnv>, call: Call, id: string): void {
    inBackground(c, this.#cancel(call, id));
  }

  /** Cancels an invocation. Tries again after a retryable error, such as an unreachable store: the same fault may have ended the answer. */
  async #cancel(call: Call, id: string): Promise<void> {
    const { log, shutdown = new AbortController().signal } = this.#settings;
    const giveUpAt = performance.now() + CANCEL_MS;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        // Replace the request's own signal, which has aborted.
        await this.#control.cancel({ ...call, signal: AbortSignal.timeout(ATTEMPT_MS) }, id, 'The client left.');
        return;
      } catch (error) {
        const isTransient = RETRYABLE.has(GatewayError.from(error).code);
        if (!isTransient || shutdown.aborted || performance.now() + pauseMs > giveUpAt) {
          const fields = { requestId: call.requestId, invocation: id, error };
          log.error(fields, 'an invocation that its client left could not be cancelled');
          return;
        }
      }
      await pause(pauseMs, shutdown);
    }
  }
}

/**
 * Sends an invocation's outcome as the answer to the request that made the invocation.
 *
 * @param text JSON
 * @throws GatewayError `gateway-busy` or `too-many-requests` when `textAnswer` has no memory for a large outcome. The error names the invocation, so
 *   that the client can read the outcome later. It allows an automatic retry only with an `Idempotency-Key`: without one, a retry would run the
 *   function again
 */
export function outcomeAnswer(
  c: Context<AppEnv>,
  id: string,
  text: string,
  headers: Readonly<Record<string, string>>,
): Response {
  try {
    return textAnswer(c, text, 200, { 'content-type': 'application/json', ...headers });
  } catch (caught) {
    const { code, message, headers: refusalHeaders } = GatewayError.from(caught);
    throw new GatewayError(code, message, {
      hint: `The invocation has ended: read its outcome at ${addressOf(id)}.`,
      members: { invocation: id },
      headers: { ...refusalHeaders, ...headers, 'x-should-retry': String(hasKey(c)) },
    });
  }
}

/** Answers with an invocation as JSON. An output that is a `JsonText` is not parsed. */
export function jsonResponse(
  c: Context<AppEnv>,
  invocation: HeldInvocation,
  status: 200 | 202,
  headers: Record<string, string> = {},
): Response {
  return textAnswer(c, jsonWithOutput(invocation), status, { 'content-type': 'application/json', ...headers });
}

/** True when a repeat of the request would find this invocation instead of making another one. */
function hasKey(c: Context<AppEnv>): boolean {
  return c.req.header('idempotency-key') !== undefined;
}

function addressOf(id: string): string {
  return `/v1/invocations/${id}`;
}

function headersOf(
  id: string,
  { cancelOnDisconnect = false, replayed = false }: AnswerOptions,
  otherPreferences: Partial<Preferences> = {},
): Record<string, string> {
  const preference = preferenceApplied({ cancelOnDisconnect, ...otherPreferences });
  return {
    'content-location': addressOf(id),
    ...(preference === undefined ? {} : { 'preference-applied': preference }),
    ...(replayed ? { 'idempotency-replayed': 'true' } : {}),
  };
}

/** Ends the request of a departed client. Only logs show the status, 499, which nginx uses for this case. */
export function clientClosedRequest(): Response {
  return new Response(null, { status: 499 });
}

/** An outcome that is not serialised yet: `resultIn` gives its output as a `JsonText` where it can. */
type HeldOutcome = Omit<Outcome, 'messages'> & { readonly messages: readonly unknown[] };

/** Bytes of memory that a parsed message takes per character of its text, by estimate. */
const BYTES_PER_CHARACTER = 4;

/**
 * Follows an invocation to its end, and returns its output and messages. The first message that would exceed `maxCharacters` (UTF-16 code units of
 * the messages' JSON texts) or the memory of `room` is dropped with all later ones; the outcome then has `messagesTruncated`.
 *
 * @throws GatewayError the failure of a failed invocation, with the messages kept before it
 */
export async function collectOutcome(
  events: AsyncIterable<InvocationEvent>,
  id: string,
  maxCharacters: number,
  room: Pick<CountedRoom, 'take' | 'give'>,
): Promise<HeldOutcome> {
  const messages: unknown[] = [];
  let characters = 0;
  let heldBytes = 0;
  let truncated = false;
  // The state at the last question. An attempt begins with `start`, and sends the lost attempt's messages again, but only those after that question.
  let checkpoint = { count: 0, characters: 0, heldBytes: 0, truncated: false };
  for await (const event of events) {
    if (event.event === 'question') checkpoint = { count: messages.length, characters, heldBytes, truncated };
    else if (event.event === 'start') {
      // Drop the messages that the new attempt sends again.
      messages.length = checkpoint.count;
      room.give(heldBytes - checkpoint.heldBytes);
      ({ characters, heldBytes, truncated } = checkpoint);
    } else if (event.event === 'message') {
      const bytes = BYTES_PER_CHARACTER * event.data.length;
      characters += event.data.length;
      truncated ||= characters > maxCharacters || !room.take(bytes);
      if (!truncated) {
        heldBytes += bytes;
        messages.push(JSON.parse(event.data));
      }
    } else if (event.event === 'result') {
      const { output, usage } = resultIn(event.data);
      return {
        id,
        status: 'succeeded',
        output,
        messages,
        ...(truncated ? { messagesTruncated: true } : {}),
        ...(usage === undefined ? {} : { usage }),
      };
    } else if (event.event === 'error') {
      const { code, message, usage, cause, successor, retryAfterMs } = JSON.parse(event.data);
      const knownCode = isErrorCode(code) ? code : 'internal';
      throw new GatewayError(knownCode, String(message), {
        hint: failureHint(knownCode, cause),
        members: {
          messages,
          ...(truncated ? { messagesTruncated: true } : {}),
          ...(usage === undefined ? {} : { usage }),
          ...(cause === undefined ? {} : { cause }),
          ...(successor === undefined ? {} : { successor }),
        },
        headers: retryAfterHeaders(retryAfterMs),
      });
    }
  }
  throw new GatewayError('internal', 'The events ended before the outcome of the invocation.');
}
