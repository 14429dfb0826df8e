import type { EventName, InvocationFile, Json, LogLevel } from '../app/control.ts';
import { PieError } from './errors.ts';
import type { Frame } from './event-source.ts';

export type Usage = Readonly<Record<string, unknown>>;

/** What an inferlet sent: text, bytes in base64, or word of a file that is there for its client. */
export type MessageData = { readonly text: string } | { readonly base64: string } | { readonly file: InvocationFile };

interface EventData {
  readonly start: {
    readonly invocation: string;
    readonly function: string;
    readonly version: string;
    readonly queuedMs: number;
    readonly coldStart: boolean;
    /** From the second attempt on: what earlier ones have said is taken back. */
    readonly attempt?: number;
    /** The invocation that launched it. */
    readonly parent?: string;
  };
  readonly message: MessageData;
  readonly log: { readonly level: LogLevel; readonly message: string };
  readonly metric: Readonly<Record<string, unknown>>;
  /** The runtime died: what it sent after event `after` within its last quarter of a second may have been seen, and is not kept. */
  readonly gap: { readonly after: number };
  readonly result: { readonly output: Json; readonly usage: Usage };
  readonly error: { readonly code: string; readonly message: string; readonly hint?: string; readonly usage?: Usage };
}

/** An event of an invocation with its data parsed; `event` tells which. */
export type PieEvent = {
  [Name in EventName]: { readonly id: number; readonly event: Name; readonly data: EventData[Name] };
}[EventName];

const NAMES: ReadonlySet<string> = new Set<EventName>(['start', 'message', 'log', 'metric', 'gap', 'result', 'error']);

/** The event of a frame, or null for an event that this client does not know (a newer gateway's). */
export function eventOf(frame: Frame): PieEvent | null {
  if (!NAMES.has(frame.event)) return null;
  try {
    // The gateway is trusted to keep the shapes of its contract; the name was checked.
    return { id: Number(frame.id), event: frame.event, data: JSON.parse(frame.data) } as PieEvent;
  } catch (cause) {
    throw new PieError('bad-response', 'The data of an event is not JSON.', { cause });
  }
}
