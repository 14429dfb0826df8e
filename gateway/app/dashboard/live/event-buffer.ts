import type { InvocationEvent } from '../../control.ts';
import { pause } from '../../pause.ts';
import { MAX_TEXT } from '../pages/transcript.ts';

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
