import { Items } from '#scheduler/invocations/feed.ts';
import type { Position } from '#scheduler/invocations/types.ts';
import type { InvocationEvent } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { BEGINNING, eventId, hasUpTo, positionOf } from '../../invocations/event-id.ts';
import { pause } from '../../pause.ts';
import { textOf } from '../html/parts.ts';
import type { Fragment, Page, Visit } from '../page.ts';
import { MAX_TEXT, transcript } from '../pages/invocation.ts';
import type { LiveFrame } from './frames.ts';

/** Time between two renders of a page. */
const TICK_MS = 1500;
/** After a first event, time to wait for more events for the same frame. */
const GATHER_MS = 100;
/** Longest wait for the last events of an invocation that has ended. */
const LAST_EVENTS_MS = 5000;

interface Followed {
  /** Authenticates the key again. Resolves to the current visit, or null when the session is over. */
  readonly renew: () => Promise<Visit | null>;
  readonly render: (visit: Visit) => Promise<Page>;
  /** Position of the last event that the browser has; null when it named none. */
  readonly after: Position | null;
  /** Aborts when the browser no longer follows the page. */
  readonly signal: AbortSignal;
}

/** Yields the changes of a page until the session ends or the page is final. Throws when it cannot go on; the browser then reconnects. */
export async function* follow(followed: Followed): AsyncGenerator<LiveFrame, void, undefined> {
  try {
    yield* liveFrames(followed);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== 'unauthorized') throw error;
    // The key was removed between two renders.
    yield { event: 'end', data: { why: 'signed-out' } };
  }
}

async function* liveFrames(followed: Followed): AsyncGenerator<LiveFrame, void, undefined> {
  const changes = new Changes();
  const { signal } = followed;
  let events: EventFeed | undefined;
  try {
    while (!signal.aborted) {
      const visit = await followed.renew();
      if (visit === null) {
        yield { event: 'end', data: { why: 'signed-out' } };
        return;
      }
      const page = await followed.render(visit);
      yield* await changes.since(page.fragments.filter(({ fixed }) => fixed !== true));
      if (page.stream !== undefined) events ??= new EventFeed(visit, page.stream, followed.after);
      if (!page.live) {
        if (events !== undefined)
          yield* events.remainingEvents(positionOf(page.stream?.after ?? '') ?? BEGINNING, signal);
        yield { event: 'end', data: { why: 'complete' } };
        return;
      }
      if (events === undefined) await pause(TICK_MS, signal);
      else yield* events.during(TICK_MS, signal);
    }
  } finally {
    events?.close();
  }
}

/** Reads the events of one invocation and gathers them into frames. */
class EventFeed {
  readonly #buffer: EventBuffer;
  readonly #reading = new AbortController();
  #sentPosition: Position;

  constructor({ control, call }: Visit, { id, after }: NonNullable<Page['stream']>, seenPosition: Position | null) {
    this.#sentPosition = seenPosition ?? positionOf(after) ?? BEGINNING;
    const signal = AbortSignal.any([call.signal, this.#reading.signal]);
    this.#buffer = new EventBuffer(new Items(control.events(call, id, this.#sentPosition), signal));
  }

  /** Yields the events of the next `ms` milliseconds. Ends early after the terminal event. */
  async *during(ms: number, signal: AbortSignal): AsyncGenerator<LiveFrame, void, undefined> {
    const end = performance.now() + ms;
    while (!signal.aborted && performance.now() < end) {
      const events = await this.#buffer.take(end - performance.now(), GATHER_MS, signal);
      const last = events.at(-1);
      if (last === undefined) {
        // Without a terminal event, only a fault ends the source. Then wait for the next render, as a page without events does.
        if (this.#buffer.isOver) await pause(end - performance.now(), signal);
        continue;
      }
      this.#sentPosition = last;
      yield { event: 'events', id: eventId(last), data: await transcript(events) };
      if (last.event === 'result' || last.event === 'error') return;
    }
  }

  /** Yields the unsent events of an ended invocation up to the position `last`. Waits for them at most `LAST_EVENTS_MS`. */
  async *remainingEvents(last: Position, signal: AbortSignal): AsyncGenerator<LiveFrame, void, undefined> {
    const end = performance.now() + LAST_EVENTS_MS;
    while (!hasUpTo(this.#sentPosition, last) && !this.#buffer.isOver && performance.now() < end && !signal.aborted)
      yield* this.during(end - performance.now(), signal);
  }

  close(): void {
    this.#reading.abort();
    this.#buffer.close();
  }
}

/** Renders fragments repeatedly and returns those that changed. */
export class Changes {
  readonly #sent = new Map<string, string>();

  /** The fragments that differ from the last sent ones, or were never sent. */
  async since(fragments: readonly Fragment[]): Promise<LiveFrame[]> {
    const rendered = await Promise.all(
      fragments.map(async ({ id, render }) => ({ id, html: await textOf(await render()) })),
    );
    const changed = rendered.filter(({ id, html }) => this.#sent.get(id) !== html);
    for (const { id, html } of changed) this.#sent.set(id, html);
    return changed.map((data): LiveFrame => ({ event: 'fragment', data }));
  }
}

/** Number of waiting events at which the buffer stops reading from its source. */
const MAX_WAITING = 1000;
/** Characters of waiting events at which the buffer stops reading from its source. */
const MAX_CHARACTERS = MAX_TEXT;

/** Collects an invocation's events between two reads. */
export class EventBuffer {
  #events: InvocationEvent[] = [];
  #characters = 0;
  #isOver = false;
  #isClosed = false;
  #error: unknown;
  #wakeReader: () => void = () => undefined;
  #resumeSource: () => void = () => undefined;

  /** `close` takes effect only at the source's next event. To end a quiet source, the caller must also abort the signal of the source. */
  constructor(source: AsyncIterable<InvocationEvent>) {
    void this.#fill(source);
  }

  /**
   * Returns the events since the last call, at once if any have come. Otherwise waits at most `waitMs` for one, then `gatherMs` for more. The result
   * is empty after a timeout, an abort or the end of the source. Throws the source's error once all earlier events were taken.
   */
  async take(waitMs: number, gatherMs: number, signal: AbortSignal): Promise<readonly InvocationEvent[]> {
    if (this.#events.length === 0 && !this.#isOver) {
      const waiting = new AbortController();
      this.#wakeReader = () => waiting.abort();
      await pause(waitMs, AbortSignal.any([waiting.signal, signal]));
      this.#wakeReader = () => undefined;
      if (this.#events.length > 0 && !this.#isOver) await pause(gatherMs, signal);
    }
    const events = this.#events;
    this.#events = [];
    this.#characters = 0;
    this.#resumeSource();
    if (events.length === 0 && this.#error !== undefined) throw this.#error;
    return events;
  }

  /** True when the source has ended; its last events may still wait in the buffer. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Stops the buffer: no reader will take events any more. */
  close(): void {
    this.#isClosed = true;
    this.#resumeSource();
  }

  async #fill(source: AsyncIterable<InvocationEvent>): Promise<void> {
    try {
      for await (const event of source) {
        if (this.#isClosed) return;
        this.#events.push(event);
        this.#characters += event.data.length;
        this.#wakeReader();
        if (this.#events.length >= MAX_WAITING || this.#characters >= MAX_CHARACTERS)
          await new Promise<void>((resolve) => {
            this.#resumeSource = resolve;
          });
      }
    } catch (error) {
      this.#error = error;
    }
    this.#isOver = true;
    this.#wakeReader();
  }
}
