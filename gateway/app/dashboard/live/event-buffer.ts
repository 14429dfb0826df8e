import type { InvocationEvent } from '../../control.ts';
import { pause } from '../../pause.ts';
import { MAX_TEXT } from '../pages/transcript.ts';

/** Events that wait to be shown, and what they hold; their source waits when it is so much, be it with one event. */
const MAX_WAITING = 1000;
const MAX_CHARACTERS = MAX_TEXT;

/** Collects an invocation's events between two looks at them. */
export class EventBuffer {
  #events: InvocationEvent[] = [];
  #characters = 0;
  #over = false;
  #closed = false;
  #error: unknown;
  #arrived: () => void = () => undefined;
  #taken: () => void = () => undefined;

  /** The source ends by its own signal. */
  constructor(source: AsyncIterable<InvocationEvent>) {
    void this.#fill(source);
  }

  /**
   * What came since, at the latest after `waitMs`; once something is there, `gatherMs` are left for more. Throws what the source threw, once
   * everything before it was taken.
   */
  async take(waitMs: number, gatherMs: number, signal: AbortSignal): Promise<readonly InvocationEvent[]> {
    if (this.#events.length === 0 && !this.#over) {
      const waiting = new AbortController();
      this.#arrived = () => waiting.abort();
      await pause(waitMs, AbortSignal.any([waiting.signal, signal]));
      this.#arrived = () => undefined;
      if (this.#events.length > 0 && !this.#over) await pause(gatherMs, signal);
    }
    const events = this.#events;
    this.#events = [];
    this.#characters = 0;
    this.#taken();
    if (events.length === 0 && this.#error !== undefined) throw this.#error;
    return events;
  }

  /** Whether the source has ended; what it gave may still be there to take. */
  get over(): boolean {
    return this.#over;
  }

  /** Nobody will take anything any more. */
  close(): void {
    this.#closed = true;
    this.#taken();
  }

  async #fill(source: AsyncIterable<InvocationEvent>): Promise<void> {
    try {
      for await (const event of source) {
        if (this.#closed) return;
        this.#events.push(event);
        this.#characters += event.data.length;
        this.#arrived();
        if (this.#events.length >= MAX_WAITING || this.#characters >= MAX_CHARACTERS)
          await new Promise<void>((resolve) => {
            this.#taken = resolve;
          });
      }
    } catch (error) {
      this.#error = error;
    }
    this.#over = true;
    this.#arrived();
  }
}
