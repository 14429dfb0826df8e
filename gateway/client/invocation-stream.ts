import { EVENT_NAMES, type EventName, type Json, type StartData } from '../app/control.ts';
import { positionOf } from '../app/invocations/event-id.ts';
import type { LogEntry, MessageData, Question, Usage } from '../app/schemas/invocations.ts';
import { errorFromEvent, PieError } from './errors.ts';
import { type Frame, readFrames } from './event-source.ts';
import { type Http, pause } from './http.ts';

/** A stream that stays open for this part of `reconnectMs` counts as resumed, even without an event: a gateway without Redis ends it sooner. */
const STEADY_PART = 1 / 3;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1000;

interface StreamOptions {
  readonly signal?: AbortSignal | undefined;
  /** Also sent when the stream is resumed. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * The events of one invocation, in order and each once. After a broken connection the stream resumes with the event after the last one. It
 * ends after the `result` or `error` event and yields these like the others: a failed invocation does not throw here.
 *
 * Throws {@link PieError} when the stream cannot be resumed, or the signal's reason.
 *
 * @example
 * for await (const event of stream) if (event.event === 'message' && 'text' in event.data) process.stdout.write(event.data.text);
 */
export class InvocationStream implements AsyncIterable<PieEvent> {
  readonly id: string;
  readonly #http: Http;
  readonly #options: StreamOptions;
  #response: Response | null;
  #lastEventId: string;
  #wasRead = false;

  /** @param response an open event stream, or null to open one after `lastEventId`. */
  constructor(http: Http, id: string, response: Response | null, lastEventId: string, options: StreamOptions) {
    this.#http = http;
    this.id = id;
    this.#response = response;
    this.#lastEventId = lastEventId;
    this.#options = options;
  }

  /** Id of the last event seen; '0' before the first. A later stream resumes after it. */
  get lastEventId(): string {
    return this.#lastEventId;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PieEvent, void, undefined> {
    if (this.#wasRead) throw new TypeError('An invocation stream can be read once; open another with `events(id)`.');
    this.#wasRead = true;
    let brokenSince: number | null = null;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      let problem: unknown;
      // Infinite until the stream is open.
      let openedAt = Number.POSITIVE_INFINITY;
      try {
        const response = this.#response ?? (await this.#reopen());
        this.#response = null;
        openedAt = performance.now();
        for await (const event of this.#events(response)) {
          brokenSince = null;
          pauseMs = FIRST_PAUSE_MS;
          yield event;
          if (event.event === 'result' || event.event === 'error') return;
        }
        problem = new PieError('connection-failed', 'The stream ended early.', { invocation: this.id });
      } catch (error) {
        this.#options.signal?.throwIfAborted();
        if (error instanceof PieError && !error.retryable) throw error;
        problem = error;
      }
      if (this.#wasSteady(openedAt, problem)) {
        brokenSince = null;
        pauseMs = FIRST_PAUSE_MS;
      }
      brokenSince ??= performance.now();
      if (performance.now() - brokenSince > this.#http.reconnectMs) throw this.#reconnectFailure(problem);
      await pause(pauseMs, this.#options.signal);
    }
  }

  /** Yields the text messages. Throws {@link PieError} when the invocation fails. */
  async *text(): AsyncGenerator<string, void, undefined> {
    for await (const event of this) {
      if (event.event === 'message' && 'text' in event.data) yield event.data.text;
      else if (event.event === 'error') throw errorFromEvent(event.data, this.id);
    }
  }

  async *#events(response: Response): AsyncGenerator<PieEvent> {
    if (response.body === null) return;
    for await (const frame of this.#frames(response.body)) {
      const event = eventOf(frame);
      if (event === null) continue;
      if (!frame.hasId) {
        // An error without an id comes from the gateway, not the invocation: the gateway cannot continue this stream.
        if (event.event === 'error') throw errorFromEvent(event.data, this.id);
        continue;
      }
      if (isSeen(event.id, this.#lastEventId)) continue;
      this.#lastEventId = event.id;
      yield event;
    }
  }

  #frames(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame> {
    return readFrames(body, { idleTimeoutMs: this.#http.idleTimeoutMs, signal: this.#options.signal });
  }

  async #reopen(): Promise<Response> {
    const response = await this.#http.request(`/v1/invocations/${encodeURIComponent(this.id)}/events`, {
      headers: { ...this.#options.headers, accept: 'text/event-stream', 'last-event-id': this.#lastEventId },
      signal: this.#options.signal,
    });
    if (response.status !== 204) return response;
    throw new PieError('conflict', 'The invocation has ended, and its last event was seen before.', {
      status: 204,
      invocation: this.id,
    });
  }

  /** True when the stream went on for a while before it broke or fell silent. The client then has the whole `reconnectMs` for the new break. */
  #wasSteady(openedAt: number, problem: unknown): boolean {
    const { reconnectMs, idleTimeoutMs } = this.#http;
    const silentMs = problem instanceof DOMException && problem.name === 'TimeoutError' ? idleTimeoutMs : 0;
    return performance.now() - openedAt - silentMs > STEADY_PART * reconnectMs;
  }

  #reconnectFailure(problem: unknown): PieError {
    if (problem instanceof PieError && problem.code !== 'connection-failed') return problem;
    const message = problem instanceof Error ? problem.message : String(problem);
    return new PieError(
      'connection-failed',
      `The stream of ${this.id} broke and could not be taken up again: ${message}`,
      {
        invocation: this.id,
        hint: 'The invocation goes on by itself; attach to it again once the gateway answers.',
        cause: problem,
      },
    );
  }
}

/** True for an event of the same epoch (attempt) with a number that is not above the last one seen. */
function isSeen(id: string, lastId: string): boolean {
  const [eventPosition, lastPosition] = [positionOf(id), positionOf(lastId)];
  return (
    eventPosition !== null &&
    lastPosition !== null &&
    eventPosition.epoch === lastPosition.epoch &&
    eventPosition.seq <= lastPosition.seq
  );
}

export type { MessageData, Usage };

interface EventData {
  readonly start: StartData;
  readonly message: MessageData;
  readonly log: Pick<LogEntry, 'level' | 'message'>;
  /** Times of the attempt in ms. The member `spans` has the parts of its work that the inferlet recorded. */
  readonly metric: Readonly<Record<string, unknown>>;
  /** The runtime died, or the store lost writes. The client may have seen events after number `after` that the store lacks: they are void. */
  readonly gap: { readonly after: number };
  /** The invocation waits until `until` for the answer of a person; see `PieClient.answer`. The next attempt keeps the messages so far. */
  readonly question: Omit<Question, 'number'>;
  readonly result: { readonly output: Json; readonly usage: Usage };
  readonly error: {
    readonly code: string;
    readonly message: string;
    readonly hint?: string;
    readonly usage?: Usage;
    /** For the code `superseded`: the id of the invocation that replaced this one. */
    readonly successor?: string;
    /** The functions in which a script threw the error, innermost first, with file, line and column; one in each line. */
    readonly stack?: string;
  };
}

/** An event of an invocation with its data parsed. A stream that resumes after `id` begins with the next event. */
export type PieEvent = {
  [Name in EventName]: { readonly id: string; readonly event: Name; readonly data: EventData[Name] };
}[EventName];

const NAMES: ReadonlySet<string> = new Set<EventName>(EVENT_NAMES);

/** The event of a frame; null for an event that only a newer gateway knows. */
function eventOf(frame: Frame): PieEvent | null {
  if (!NAMES.has(frame.event)) return null;
  try {
    // The client trusts the gateway to keep to its contract; only the name was checked.
    return { id: frame.id, event: frame.event, data: JSON.parse(frame.data) } as PieEvent;
  } catch (cause) {
    throw new PieError('bad-response', 'The data of an event is not JSON.', { cause });
  }
}
