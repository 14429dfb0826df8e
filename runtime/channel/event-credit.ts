import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { ChannelCall } from '#wit/generate/channel-io.ts';
import {
  droppedLines,
  MAX_LOG_CHARACTERS,
  MAX_MESSAGE_BYTES,
  MAX_PENDING_BYTES,
  tooLong,
  tooMany,
} from '../host/session/session-state.ts';
import { callNumber } from './calls.ts';
import { EVENT_COST, eventBytes } from './event-relay.ts';

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
