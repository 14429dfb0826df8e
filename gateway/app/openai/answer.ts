import type { Context } from 'hono';
import type { AppEnv, AppSettings } from '../context.ts';
import type { Call, ControlPlane, InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { eventStreamResponse, isRevocation } from '../http/event-stream.ts';
import { JsonText, resultIn } from '../http/json-text.ts';
import { Responder } from '../invocations/respond.ts';
import { asOpenAiError, openAiErrorFrame, refusalIn } from './errors.ts';

/** How a route writes its streams. */
export interface StreamStyle {
  /** Each frame has the `event` that its `type` member says, as in /v1/responses. */
  readonly named: boolean;
  /** A stream that succeeds ends with `data: [DONE]`. */
  readonly done: boolean;
}

interface Frame {
  readonly text: string;
  readonly last: boolean;
}

/** The invocation that answers. */
export interface Answering {
  readonly id: string;
  /** The client has named it (`Idempotency-Key`) and may come back for it: it outlives the connection. */
  readonly named: boolean;
  /** A request before this one has made it. */
  readonly replayed: boolean;
}

/** The two ways in which an OpenAI-compatible route answers. A client that leaves takes its invocation with it, unless it has named it. */
export class OpenAiAnswers {
  readonly #control: ControlPlane;
  readonly #settings: AppSettings;
  readonly #responder: Responder;

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#settings = settings;
    this.#responder = new Responder(control, settings);
  }

  /** The function's result as it is. Throws what the invocation failed with, or what the function refused. */
  async whole(c: Context<AppEnv>, call: Call, answering: Answering): Promise<Response> {
    const { id, named } = answering;
    const how = { cancelOnDisconnect: !named };
    const outcome = await this.#responder.follow(c, call, id, how).catch((error: unknown) => {
      // Whatever it was (the store went away, the process stops), nobody can come back for the answer.
      if (!named) this.#responder.cancelAbandoned(c, call, id);
      throw error;
    });
    if (outcome === null) return new Response(null, { status: 499 });
    const refusal = refusalIn(outcome.output);
    if (refusal !== null) throw refusal;
    const { output } = outcome;
    const text = output instanceof JsonText ? output.text : JSON.stringify(output);
    return c.body(text, 200, { 'content-type': 'application/json', ...headersOf(answering) });
  }

  /** The function's messages as OpenAI's frames. Throws what comes before the first of them. */
  async stream(c: Context<AppEnv>, call: Call, answering: Answering, style: StreamStyle): Promise<Response> {
    const { id, named } = answering;
    const { heartbeatMs, firstFrameMs, shutdown, log } = this.#settings;
    const following = new AbortController();
    const frames = framesOf(this.#control.events({ ...call, signal: following.signal }, id, 0), style);
    const first = frames.next();
    // It is looked at again below, unless the client has left.
    first.catch(() => undefined);
    const cancel = () => {
      if (!named) this.#responder.cancelAbandoned(c, call, id);
    };
    try {
      await firstOf(first, firstFrameMs, [call.signal, shutdown]);
    } catch (error) {
      following.abort();
      cancel();
      throw error;
    }
    return eventStreamResponse({
      method: c.req.method,
      source: startingWith(first, frames),
      frame: ({ text }) => text,
      isTerminal: ({ last }) => last,
      errorFrame: (error) => openAiErrorFrame(asOpenAiError(error)),
      heartbeatMs,
      recheck: c.get('recheck'),
      keepOpen: c.get('keepOpen'),
      room: this.#settings.bodies.roomFor(call.principal.tenant),
      client: call.signal,
      shutdown,
      headers: headersOf(answering),
      onDisconnect: cancel,
      onEnd: (error) => {
        following.abort();
        if (error === undefined) return;
        // Who has lost the key for it has not asked for its end.
        if (!isRevocation(error)) cancel();
        log({ level: 'warn', message: `the stream of ${id} was cut`, requestId: call.requestId, error });
      },
    });
  }
}

function headersOf({ id, replayed }: Answering): Record<string, string> {
  return { 'content-location': `/v1/invocations/${id}`, ...(replayed ? { 'idempotency-replayed': 'true' } : {}) };
}

/** The messages of an invocation as frames, the last one with its end. Throws what it failed with. */
async function* framesOf(
  events: AsyncIterable<InvocationEvent>,
  style: StreamStyle,
): AsyncGenerator<Frame, void, void> {
  for await (const { event, data } of events) {
    if (event === 'message') {
      const { text } = JSON.parse(data) as { text?: string };
      if (text !== undefined) yield { text: frameOf(text, style), last: false };
    } else if (event === 'result') {
      const refusal = refusalIn(resultIn(data).output);
      if (refusal !== null) throw refusal;
      yield { text: style.done ? 'data: [DONE]\n\n' : '', last: true };
    } else if (event === 'error') {
      const { code, message, cause } = JSON.parse(data);
      const known = isErrorCode(code) ? code : 'internal';
      throw new GatewayError(known, String(message), { hint: failureHint(known, cause) });
    }
  }
}

/** A message is one line of JSON, and begins with its `type` where types name events. */
function frameOf(json: string, { named }: StreamStyle): string {
  const type = named ? /^\{"type":"([\w.]+)"/.exec(json)?.[1] : undefined;
  return `${type === undefined ? '' : `event: ${type}\n`}data: ${json}\n\n`;
}

async function* startingWith(first: Promise<IteratorResult<Frame>>, rest: AsyncIterable<Frame>): AsyncGenerator<Frame> {
  const { value, done } = await first;
  if (done === true) return;
  yield value;
  yield* rest;
}

/** Resolves with the first to happen; rejects when `work` does so before. */
async function firstOf(
  work: Promise<unknown>,
  ms: number,
  signals: readonly (AbortSignal | undefined)[],
): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop: () => void = () => undefined;
  const enough = new Promise<void>((resolve) => {
    stop = resolve;
    timer = setTimeout(resolve, ms);
    for (const signal of signals) {
      if (signal?.aborted === true) resolve();
      else signal?.addEventListener('abort', stop);
    }
  });
  try {
    await Promise.race([work, enough]);
  } finally {
    clearTimeout(timer);
    for (const signal of signals) signal?.removeEventListener('abort', stop);
  }
}
