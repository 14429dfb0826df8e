import { setImmediate } from 'node:timers/promises';
import type { ChannelCall } from '#wit/generate/channel-io.ts';
import type { Message } from '#wit/generated/host.ts';
import { MAX_MESSAGE_BYTES, MAX_PENDING_BYTES } from '../host/session-state.ts';
import { ChannelFault } from './fault.ts';

/** What an event costs beside its bytes: without it, events without content would need no credit. */
export const EVENT_COST = 256;

/** Bytes of an event's text or content. */
export function eventBytes(args: readonly unknown[]): number {
  const last = args.at(-1);
  if (typeof last === 'string') return Buffer.byteLength(last);
  const { tag, val } = last as Message;
  return tag === 'text' ? Buffer.byteLength(val) : val.length;
}

export interface EventRelayOptions {
  /** Resolves when the log has taken all events so far, in its own time or at once; false when it never can. */
  readonly flushed: (atOnce: boolean) => Promise<boolean>;
  /** The log has taken so many bytes of events. */
  readonly written: (bytes: number) => void;
  readonly pause: () => void;
  readonly resume: () => void;
  /** Told of what an event's call throws when it is made later. */
  readonly failed: (error: unknown) => void;
}

/**
 * Events of one invocation on their way from its sandbox to the log. The sandbox has said yes to the guest already: an event that finds no room
 * waits, and all that follows it waits behind it.
 */
export class EventRelay {
  readonly #options: EventRelayOptions;
  /** Bytes that the sandbox was not given credit for yet. */
  #pending = 0;
  #sent = 0;
  #acknowledged = 0;
  #draining = false;
  #ended = false;

  constructor(options: EventRelayOptions) {
    this.#options = options;
  }

  /** Makes the call of one event, now or when there is room for it. */
  take(args: readonly unknown[], make: () => unknown): void {
    const bytes = eventBytes(args);
    const cost = bytes + EVENT_COST;
    if (bytes > MAX_MESSAGE_BYTES || this.#pending + cost > 2 * MAX_PENDING_BYTES) {
      throw new ChannelFault('too-much-in-flight', 'the sandbox sent events that it has no credit for');
    }
    this.#sent += cost;
    this.#pending += cost;
    if (refused(make())) {
      this.#options.pause();
      void this.#retry(make);
    }
    void this.#drain();
  }

  /** Bytes of events so far, when the guest asks for a flush; -1 for another call. */
  mark(call: ChannelCall): number {
    return call.interface === 'session' && call.name === 'flush' ? this.#sent : -1;
  }

  /** A call of the guest's is about to be answered. After a flush it may send again at once, so the credit goes before the answer. */
  settled(mark: number, outcome: unknown): void {
    if (mark >= 0 && !refused(outcome)) this.#acknowledge(mark);
  }

  end(): void {
    this.#ended = true;
  }

  async #retry(make: () => unknown): Promise<void> {
    try {
      do {
        if (!(await this.#options.flushed(true))) break;
        // A log that takes everything at once answers without a turn of the event loop.
        await setImmediate();
      } while (!this.#ended && refused(make()));
    } catch (error) {
      this.#options.failed(error);
    }
    if (!this.#ended) this.#options.resume();
  }

  async #drain(): Promise<void> {
    if (this.#draining) return;
    this.#draining = true;
    while (this.#pending > 0 && !this.#ended) {
      const upTo = this.#sent;
      if (!(await this.#options.flushed(false))) break;
      this.#acknowledge(upTo);
    }
    this.#draining = false;
  }

  #acknowledge(upTo: number): void {
    const bytes = upTo - this.#acknowledged;
    if (bytes <= 0 || this.#ended) return;
    this.#acknowledged = upTo;
    this.#pending -= bytes;
    this.#options.written(bytes);
  }
}

const refused = (outcome: unknown): boolean => (outcome as { readonly tag?: unknown } | undefined)?.tag === 'err';
