import { EVENT_NAMES, type InvocationEvent } from '../app/control.ts';
import { isErrorCode } from '../app/errors/codes.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import type { PulledSource } from '../app/http/event-stream.ts';
import { positionOf } from '../app/invocations/event-id.ts';
import { errorFromEvent, PieError } from '../client/errors.ts';
import { type Frame, FrameStream } from '../client/event-source.ts';

/** Converts the origin's error to a gateway error with the same code, message and field. */
export function translate(error: unknown): unknown {
  if (error instanceof GatewayError) return error;
  const away = (message: string, hint?: string) =>
    new GatewayError('origin-unavailable', message, { ...(hint !== undefined && { hint }), cause: error });
  if (!(error instanceof PieError)) return away('The connection to the origin broke.');
  if (error.code === 'connection-failed') return away('The origin cannot be reached.');
  if (!isErrorCode(error.code))
    return away(
      'The answer of the origin cannot be read.',
      'Try again in a few seconds. If the error persists, the operator should check the address and the release of the origin.',
    );
  return new GatewayError(error.code, error.message, {
    hint: error.hint,
    field: error.field,
    cause: error,
    members: { ...error.quota, ...(error.invocation === undefined ? {} : { invocation: error.invocation }) },
    headers: error.limitHeaders,
  });
}

/** A connection that brings nothing for this time counts as broken: the origin sends a heartbeat every 15 s. */
const IDLE_TIMEOUT_MS = 60_000;

/** The events of one invocation as the origin streams them. */
export class OriginEvents implements PulledSource<InvocationEvent> {
  readonly #id: string;
  readonly #open: (signal: AbortSignal) => Promise<Response>;
  readonly #connectionAbort = new AbortController();
  #frames: FrameStream | undefined;
  #failure: unknown;

  /** @param open requests the stream; its connection ends with the signal */
  constructor(id: string, open: (signal: AbortSignal) => Promise<Response>) {
    this.#id = id;
    this.#open = open;
  }

  /** @throws GatewayError */
  async next(): Promise<InvocationEvent[] | null> {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      this.#frames ??= await this.#connect();
      for (let frames = await this.#frames?.read(); frames; frames = await this.#frames?.read()) {
        const events = this.#eventsOf(frames);
        if (events.length > 0) return events;
        if (this.#failure !== undefined) throw this.#failure;
      }
    } catch (error) {
      throw translate(error);
    }
    // The reader stops at a terminal event, so reaching this line means that the origin is gone.
    throw new GatewayError('origin-unavailable', 'The origin ended the stream early.');
  }

  close(): void {
    this.#frames?.close();
    this.#connectionAbort.abort();
  }

  async #connect(): Promise<FrameStream | undefined> {
    const { signal } = this.#connectionAbort;
    const { body } = await this.#open(signal);
    return body === null ? undefined : new FrameStream(body, { idleTimeoutMs: IDLE_TIMEOUT_MS, signal });
  }

  /** Events before the first error frame without an id. That frame has the origin's own error, which `next` throws. */
  #eventsOf(frames: readonly Frame[]): InvocationEvent[] {
    const events: InvocationEvent[] = [];
    for (const frame of frames) {
      const event = EVENT_NAMES.find((name) => name === frame.event);
      if (event === undefined) continue;
      const position = frame.hasId ? positionOf(frame.id) : null;
      if (position) events.push({ seq: position.seq, epoch: position.epoch ?? 0, event, data: frame.data });
      else if (event === 'error') {
        this.#failure = translate(errorFromEvent(JSON.parse(frame.data), this.#id));
        break;
      }
    }
    return events;
  }
}
