import type { Context } from 'hono';
import { type AppEnv, type AppSettings, inBackground } from '../context.ts';
import type { Call, ControlPlane, InvocationState } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { eventStreamResponse, invocationFrame } from '../http/event-stream.ts';
import { preferenceApplied } from '../http/preferences.ts';
import { collectOutcome, type Outcome } from './collect.ts';

/** How long a cancel may take whose client is no longer there to wait for it. */
const CANCEL_MS = 10_000;

/** The three ways in which an invocation answers its client: at once, as a stream, or with its outcome. */
export class Responder {
  readonly #control: ControlPlane;
  readonly #settings: AppSettings;

  constructor(control: ControlPlane, settings: AppSettings) {
    this.#control = control;
    this.#settings = settings;
  }

  /** 202 with the address of the invocation. */
  accepted(c: Context<AppEnv>, invocation: InvocationState): Response {
    return c.json(invocation, 202, {
      location: addressOf(invocation.id),
      'preference-applied': 'respond-async',
    });
  }

  /** The events after `after`, as a stream. An invocation whose client leaves keeps running, unless the client asked otherwise. */
  stream(c: Context<AppEnv>, call: Call, id: string, after: number, cancelOnDisconnect: boolean): Response {
    const { heartbeatMs, shutdown, log } = this.#settings;
    const following = new AbortController();
    return eventStreamResponse({
      source: this.#control.events({ ...call, signal: following.signal }, id, after),
      frame: invocationFrame,
      isTerminal: ({ event }) => event === 'result' || event === 'error',
      heartbeatMs,
      client: call.signal,
      shutdown,
      headers: headersOf(id, cancelOnDisconnect),
      onDisconnect: () => {
        if (cancelOnDisconnect) this.cancelAbandoned(c, call, id);
      },
      onEnd: (error) => {
        following.abort();
        if (error === undefined) return;
        log({ level: 'warn', message: `the stream of ${id} was cut`, requestId: call.requestId, error });
      },
    });
  }

  /** The outcome, once it is there. Throws what the invocation failed with. */
  async outcome(c: Context<AppEnv>, call: Call, id: string, cancelOnDisconnect: boolean): Promise<Response> {
    const outcome = await this.follow(c, call, id, cancelOnDisconnect);
    // Nobody reads this.
    if (outcome === null) return new Response(null, { status: 499 });
    return c.json(outcome, 200, headersOf(id, cancelOnDisconnect));
  }

  /** Waits for the outcome; null when the client has left before. Throws what the invocation failed with. */
  async follow(c: Context<AppEnv>, call: Call, id: string, cancelOnDisconnect: boolean): Promise<Outcome | null> {
    const { shutdown, limits } = this.#settings;
    const headers = headersOf(id, cancelOnDisconnect);
    const signal = shutdown === undefined ? call.signal : AbortSignal.any([call.signal, shutdown]);
    try {
      const events = this.#control.events({ ...call, signal }, id, 0);
      return await collectOutcome(events, id, limits.collectedBytes);
    } catch (caught) {
      if (call.signal.aborted) {
        if (cancelOnDisconnect) this.cancelAbandoned(c, call, id);
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

function addressOf(id: string): string {
  return `/v1/invocations/${id}`;
}

function headersOf(id: string, cancelOnDisconnect: boolean): Record<string, string> {
  const preference = preferenceApplied({ cancelOnDisconnect });
  return {
    'content-location': addressOf(id),
    ...(preference === undefined ? {} : { 'preference-applied': preference }),
  };
}
