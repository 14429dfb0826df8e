import type { Context } from 'hono';
import type { AppEnv, AppSettings } from '../context.ts';
import type { Call, ControlPlane } from '../control.ts';
import { isRevocation } from '../http/event-stream.ts';
import { JsonText } from '../http/json.ts';
import { BEGINNING } from '../invocations/event-id.ts';
import { clientClosedRequest, outcomeAnswer, Responder } from '../invocations/respond.ts';
import { withoutDropped } from './dropped-constraints.ts';
import { asOpenAiError, refusalIn } from './errors.ts';
import { OpenAiFrames, type StreamStyle } from './frames.ts';
import { responseIn } from './stored-responses.ts';

/** The invocation that produces the answer. */
interface Answering {
  readonly id: string;
  /** True when the client sent an `Idempotency-Key`: the client may come back for the answer, so the invocation outlives the connection. */
  readonly named: boolean;
  /** True when an earlier request made the invocation. */
  readonly replayed: boolean;
}

/**
 * Answers for a route of OpenAI's or Anthropic's API, as a whole or as a stream. When the client leaves, the gateway cancels the
 * invocation, unless the request had an `Idempotency-Key`.
 */
export class OpenAiAnswers {
  readonly #control: ControlPlane;
  readonly #settings: AppSettings;
  readonly #responder: Responder;

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#settings = settings;
    this.#responder = new Responder(control, settings);
  }

  /** Answers with the function's result. Throws the invocation's failure, or the function's refusal. */
  async answerWhole(c: Context<AppEnv>, call: Call, answering: Answering): Promise<Response> {
    const { id, named } = answering;
    const followOptions = { cancelOnDisconnect: !named, cancelsOnError: !named };
    const outcome = await this.#responder.follow(c, call, id, followOptions).catch((error: unknown) => {
      // Cancel on any error (the store went away, the process stops): without a key no client can come back for the answer.
      if (!named) this.#responder.cancelAbandoned(c, call, id);
      throw error;
    });
    if (outcome === null) return clientClosedRequest();
    const refusal = refusalIn(outcome.output);
    if (refusal !== null) throw refusal;
    const { output: result, headers } = withoutDropped(outcome.output);
    const output = responseIn(result);
    const text = output instanceof JsonText ? output.text : JSON.stringify(output);
    return outcomeAnswer(c, id, text, { ...headersOf(answering), ...headers });
  }

  /** Streams the function's messages as frames of the route's API. Throws errors that come before the first frame. */
  async stream(c: Context<AppEnv>, call: Call, answering: Answering, style: StreamStyle): Promise<Response> {
    const { id, named } = answering;
    const { firstFrameMs, shutdown } = this.#settings;
    const frames = new OpenAiFrames(this.#control.events(call, id, BEGINNING), style);
    const cancel = () => {
      if (!named) this.#responder.cancelAbandoned(c, call, id);
    };
    try {
      await firstOf(frames.begun, firstFrameMs, [call.signal, shutdown]);
      return this.#responder.streamItems(c, call, id, {
        source: frames.open,
        frame: ({ text }) => text,
        isTerminal: ({ last }) => last,
        errorFrame: (error) => style.errorFrame(asOpenAiError(error), c.get('requestId')),
        headers: { ...headersOf(answering), ...frames.takeHeaders() },
        onDisconnect: cancel,
        onCut: (error) => {
          // A revoked key ends the stream, but its client has not asked to end the invocation.
          if (!isRevocation(error)) cancel();
        },
      });
    } catch (error) {
      frames.close();
      cancel();
      throw error;
    }
  }
}

function headersOf({ id, replayed }: Answering): Record<string, string> {
  return { 'content-location': `/v1/invocations/${id}`, ...(replayed ? { 'idempotency-replayed': 'true' } : {}) };
}

/** Resolves when `work` resolves, the time is up or a signal aborts. Rejects when `work` rejects first. */
async function firstOf(
  work: Promise<unknown>,
  ms: number,
  signals: readonly (AbortSignal | undefined)[],
): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop: () => void = () => undefined;
  const cutoff = new Promise<void>((resolve) => {
    stop = resolve;
    timer = setTimeout(resolve, ms);
    for (const signal of signals) {
      if (signal?.aborted === true) resolve();
      else signal?.addEventListener('abort', stop);
    }
  });
  try {
    await Promise.race([work, cutoff]);
  } finally {
    clearTimeout(timer);
    for (const signal of signals) signal?.removeEventListener('abort', stop);
  }
}
