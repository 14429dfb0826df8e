import { EVENT_NAMES, type EventName, type Json, type StartData } from '../app/control.ts';
import type { LogEntry, MessageData, Question, Usage } from '../app/schemas/invocations.ts';
import { PieError } from './errors.ts';
import type { Frame } from './event-source.ts';

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
  };
}

/** An event of an invocation with its data parsed. A stream that resumes after `id` begins with the next event. */
export type PieEvent = {
  [Name in EventName]: { readonly id: string; readonly event: Name; readonly data: EventData[Name] };
}[EventName];

const NAMES: ReadonlySet<string> = new Set<EventName>(EVENT_NAMES);

/** The event of a frame; null for an event that only a newer gateway knows. */
export function eventOf(frame: Frame): PieEvent | null {
  if (!NAMES.has(frame.event)) return null;
  try {
    // The client trusts the gateway to keep to its contract; only the name was checked.
    return { id: frame.id, event: frame.event, data: JSON.parse(frame.data) } as PieEvent;
  } catch (cause) {
    throw new PieError('bad-response', 'The data of an event is not JSON.', { cause });
  }
}
