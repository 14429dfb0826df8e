import type { Context } from 'hono';
import { type AppEnv, type AppSettings, inBackground } from '../context.ts';
import type { Call, ControlPlane, HeldInvocation } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { eventStreamResponse, invocationFrame } from '../http/event-stream.ts';
import { jsonWithOutput } from '../http/json-text.ts';
import { type Preferences, preferenceApplied } from '../http/preferences.ts';
import { collectOutcome, type Outcome } from './collect.ts';

/** How long a cancel may take whose client is no longer there to wait for it. */
const CANCEL_MS = 10_000;

/** How an answer is given. */
export interface AnswerOptions {
  /** Cancel the invocation when its client leaves. */
  readonly cancelOnDisconnect?: boolean;
  /** An earlier request with the same idempotency key has made the invocation. */
  readonly replayed?: boolean;
}

/** The three ways in which an invocation answers its client: at once, as a stream, or with its outcome. */
export class Responder {
  readonly #control: ControlPlane;
  readonly #settings: AppSettings;

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#settings = settings;
  }

  /** 202 with the address of the invocation. */
  accepted(c: Context<AppEnv>, invocation: HeldInvocation, how: AnswerOptions, waitMs: number | null = null): Response {
    return jsonResponse(c, invocation, 202, {
      ...headersOf(invocation.id, how, { respondAsync: true, waitMs }),
      location: addressOf(invocation.id),
    });
  }

  /** The events after `after`, as a stream. An invocation whose client leaves keeps running, unless the client asked otherwise. */
  stream(c: Context<AppEnv>, call: Call, id: string, after: number, how: AnswerOptions): Response {
    const { heartbeatMs, shutdown, log } = this.#settings;
    const following = new AbortController();
    return eventStreamResponse({
      method: c.req.method,
      source: this.#control.events({ ...call, signal: following.signal }, id, after),
      frame: invocationFrame,
      isTerminal: ({ event }) => event === 'result' || event === 'error',
      heartbeatMs,
      recheck: c.get('recheck'),
      keepOpen: c.get('keepOpen'),
      room: this.#settings.bodies.roomFor(call.principal.tenant),
      client: call.signal,
      shutdown,
      headers: headersOf(id, how),
      onDisconnect: () => {
        if (how.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
      },
      onEnd: (error) => {
        following.abort();
        if (error === undefined) return;
        log({ level: 'warn', message: `the stream of ${id} was cut`, requestId: call.requestId, error });
      },
    });
  }

  /** The outcome, once it is there. Throws what the invocation failed with. */
  async outcome(c: Context<AppEnv>, call: Call, id: string, how: AnswerOptions): Promise<Response> {
    const outcome = await this.follow(c, call, id, how);
    return outcome === null ? nobodyReads() : jsonResponse(c, outcome, 200, headersOf(id, how));
  }

  /** The outcome when it is there in time, else 202 with the address of the invocation. */
  async outcomeWithin(
    c: Context<AppEnv>,
    call: Call,
    id: string,
    waitMs: number,
    how: AnswerOptions,
  ): Promise<Response> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), waitMs);
    try {
      const patient = { ...call, signal: AbortSignal.any([call.signal, late.signal]) };
      const outcome = await this.follow(c, patient, id, { replayed: how.replayed === true });
      if (outcome !== null) return jsonResponse(c, outcome, 200, headersOf(id, how, { waitMs }));
    } finally {
      clearTimeout(timer);
    }
    if (call.signal.aborted) {
      if (how.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
      return nobodyReads();
    }
    const state = await this.#control.invocation(call, id);
    if (state === null) throw new GatewayError('unknown-invocation', `There is no invocation "${id}" any more.`);
    return this.accepted(c, state, how, waitMs);
  }

  /** Waits for the outcome; null when the client has left before. Throws what the invocation failed with. */
  async follow(c: Context<AppEnv>, call: Call, id: string, how: AnswerOptions): Promise<Outcome | null> {
    const { shutdown, limits } = this.#settings;
    const headers = headersOf(id, how);
    const signal = shutdown === undefined ? call.signal : AbortSignal.any([call.signal, shutdown]);
    const room = this.#settings.bodies.roomFor(call.principal.tenant);
    try {
      const events = this.#control.events({ ...call, signal }, id, 0);
      return await collectOutcome(events, id, limits.collectedBytes, room);
    } catch (caught) {
      if (call.signal.aborted) {
        if (how.cancelOnDisconnect) this.cancelAbandoned(c, call, id);
        return null;
      }
      const error =
        shutdown?.aborted === true
          ? new GatewayError('shutting-down', 'The gateway is being stopped; the invocation goes on.')
          : GatewayError.from(caught);
      // Whatever went wrong, the client learns where its invocation is.
      throw new GatewayError(error.code, error.message, {
        hint: error.hint,
        field: error.field,
        members: { ...error.members, invocation: id },
        headers: { ...error.headers, ...headers },
        cause: error.cause,
      });
    } finally {
      room.free();
    }
  }

  /** Asks an invocation to stop whose client has left; nobody waits for that. */
  cancelAbandoned(c: Context<AppEnv>, call: Call, id: string): void {
    inBackground(c, this.#cancel(call, id));
  }

  /** The request's own signal no longer counts. */
  async #cancel(call: Call, id: string): Promise<void> {
    try {
      await this.#control.cancel({ ...call, signal: AbortSignal.timeout(CANCEL_MS) }, id, 'The client left.');
    } catch (error) {
      const message = `${id}, which its client left, could not be cancelled`;
      this.#settings.log({ level: 'error', message, requestId: call.requestId, error });
    }
  }
}

/** Answers with an invocation, whose output is passed on as it is. */
export function jsonResponse(
  c: Context<AppEnv>,
  invocation: HeldInvocation | Outcome,
  status: 200 | 202,
  headers: Record<string, string> = {},
): Response {
  return c.body(jsonWithOutput(invocation), status, { 'content-type': 'application/json', ...headers });
}

function addressOf(id: string): string {
  return `/v1/invocations/${id}`;
}

function headersOf(
  id: string,
  { cancelOnDisconnect = false, replayed = false }: AnswerOptions,
  also: Partial<Preferences> = {},
): Record<string, string> {
  const preference = preferenceApplied({ cancelOnDisconnect, ...also });
  return {
    'content-location': addressOf(id),
    ...(preference === undefined ? {} : { 'preference-applied': preference }),
    ...(replayed ? { 'idempotency-replayed': 'true' } : {}),
  };
}

/** The client has left. */
function nobodyReads(): Response {
  return new Response(null, { status: 499 });
}
