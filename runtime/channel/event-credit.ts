import { setImmediate } from 'node:timers/promises';
import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { ChannelCall } from '#wit/generate/channel-io.ts';
import type { Message } from '#wit/generated/host.ts';
import {
  droppedLines,
  MAX_LOG_CHARACTERS,
  MAX_MESSAGE_BYTES,
  MAX_PENDING_BYTES,
  tooLong,
  tooMany,
} from '../host/session/session-state.ts';
import { callNumber } from './calls.ts';
import { ChannelFault } from './limits.ts';

/** One character more than the host keeps, so that the host sees that the sandbox cut the line. */
const MAX_LINE_CHARACTERS = MAX_LOG_CHARACTERS + 1;

/** The sandbox's count of one inferlet's events that are not in the log yet; the bounds are those of `host/session-state.ts`. */
export class EventCredit {
  #pending = 0;
  #droppedLines = 0;

  /** Takes credit for one event. If there is too little, returns an error for a message, `dropped` for a log line. */
  take(call: ChannelCall, args: readonly unknown[]): HandlerError | 'dropped' | null {
    const isLine = call.interface === 'runtime';
    const bytes = eventBytes(args);
    if (isLine) {
      if (this.#pending > MAX_PENDING_BYTES) {
        this.#droppedLines++;
        return 'dropped';
      }
    } else if (bytes > MAX_MESSAGE_BYTES) return tooLong(bytes);
    else if (this.#pending + bytes > MAX_PENDING_BYTES) return tooMany(this.#pending);
    this.#pending += bytes + EVENT_COST;
    return null;
  }

  /** Returns the arguments of the event to send. Cuts a log line that is longer than the host reads. */
  cutLine(args: readonly unknown[]): readonly unknown[] {
    const [level, line] = args;
    return typeof line === 'string' && line.length > MAX_LINE_CHARACTERS
      ? [level, line.slice(0, MAX_LINE_CHARACTERS)]
      : args;
  }

  /** Returns credit for bytes that the log has taken. */
  written(bytes: number): void {
    this.#pending = Math.max(0, this.#pending - bytes);
  }

  /** Gives back the credit of an event for which the queue has no room. Returns `dropped` for a log line, which counts as dropped. */
  unsent(call: ChannelCall, args: readonly unknown[]): 'dropped' | null {
    this.written(eventBytes(args) + EVENT_COST);
    if (call.interface !== 'runtime') return null;
    this.#droppedLines++;
    return 'dropped';
  }

  /** The call that reports the number of dropped lines; null when no line was dropped. After sending the report, the caller must call `reported`. */
  droppedLine(): { readonly index: number; readonly args: readonly unknown[] } | null {
    const index = callNumber('runtime', 'log');
    if (this.#droppedLines === 0 || index === undefined) return null;
    return { index, args: ['warn', droppedLines(this.#droppedLines)] };
  }

  /** Takes credit for the report, and counts from 0 again. */
  reported(args: readonly unknown[]): void {
    this.#droppedLines = 0;
    this.#pending += eventBytes(args) + EVENT_COST;
  }
}

/** Cost of an event in addition to its bytes: without it, empty events would need no credit. */
export const EVENT_COST = 256;

/** Bytes of an event's text or content. */
export function eventBytes(args: readonly unknown[]): number {
  const last = args.at(-1);
  if (typeof last === 'string') return Buffer.byteLength(last);
  const { tag, val } = last as Message;
  return tag === 'text' ? Buffer.byteLength(val) : val.length;
}

export interface EventRelayOptions {
  /** Resolves to true when the log has taken all events so far; to false if the log cannot. Without `atOnce`, the log chooses when it writes. */
  readonly flushed: (atOnce: boolean) => Promise<boolean>;
  /** Called when the log has taken this many bytes of events. */
  readonly written: (bytes: number) => void;
  readonly pause: () => void;
  readonly resume: () => void;
  /** Called with the error when the call of a waiting event throws. */
  readonly failed: (error: unknown) => void;
}

/**
 * Events of one invocation on their way from its sandbox to the log. The sandbox has already told the guest that it accepted the event. So an
 * event for which the log has no room waits, and all later messages of the invocation wait behind it.
 */
export class EventRelay {
  readonly #options: EventRelayOptions;
  /** Cost of the events for which the sandbox has not got its credit back. */
  #pending = 0;
  /** Cost of all events so far. */
  #sent = 0;
  /** Cost of all events for which the sandbox has got its credit back. */
  #acknowledged = 0;
  #draining = false;
  #ended = false;

  constructor(options: EventRelayOptions) {
    this.#options = options;
  }

  /** Makes the call of one event, now or when the log has room. */
  take(args: readonly unknown[], make: () => unknown): void {
    const bytes = eventBytes(args);
    const cost = bytes + EVENT_COST;
    // An honest sandbox may exceed `MAX_PENDING_BYTES` by its last event and by small reports of dropped lines, so the check allows twice as much.
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

  /** Cost of all events so far if the call is a flush; -1 for another call. */
  mark(call: ChannelCall): number {
    return call.interface === 'session' && call.name === 'flush' ? this.#sent : -1;
  }

  /** Called before the answer to a call is sent. The guest may send again right after a flush, so its credit must be sent before the answer. */
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
        // `flushed` may resolve within the same turn of the event loop. Without this wait, repeated refusals would then block the thread.
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
