import type { EventName, InvocationEvent } from './types.ts';

/** Events of one live message. It has `<epoch>-<number>`, event and data of each event, all separated by NUL, which JSON text never contains. */
export function parseLive(payload: Buffer): readonly InvocationEvent[] {
  const known = parsedEvents.get(payload);
  if (known) return known;
  const parts = payload.toString('utf8').split('\0');
  const events: InvocationEvent[] = [];
  for (let i = 0; i + 2 < parts.length; i += 3) {
    const [epoch, seq] = (parts[i] ?? '').split('-');
    events.push({
      seq: Number(seq),
      epoch: Number(epoch),
      event: parts[i + 1] as EventName,
      data: parts[i + 2] ?? '',
    });
  }
  parsedEvents.set(payload, events);
  return events;
}

/** Parsed events of messages that are still in use: all followers of an invocation get the same message, and only the first one parses it. */
const parsedEvents = new WeakMap<Buffer, readonly InvocationEvent[]>();

/** Beginning of the message that announces an attempt; the id of its runtime follows. */
const BEGUN = Buffer.from('0\0begun\0');

/** The runtime that a message announces: it begins an attempt whose events it shows itself. Null for a message that holds events. */
export function parseBegun(payload: Buffer): string | null {
  return payload.subarray(0, BEGUN.length).equals(BEGUN) ? payload.toString('utf8', BEGUN.length) : null;
}

/** An entry of the stream, `[<number of its last event>-<epoch>, ['e', event, 'd', data, …]]`. */
export type Entry = readonly [id: string, fields: readonly string[]];

/** Texts in an entry for each event: `e`, the event, `d` and the data. */
const TEXTS_PER_EVENT = 4;

/** The events of the entries, without those up to number `afterSeq`. */
export function parseEntries(entries: readonly Entry[], afterSeq: number): InvocationEvent[] {
  const events: InvocationEvent[] = [];
  for (const [id, fields] of entries) {
    const [last, epoch] = id.split('-').map(Number) as [number, number];
    const first = last + 1 - fields.length / TEXTS_PER_EVENT;
    for (let i = 0; i < fields.length; i += TEXTS_PER_EVENT) {
      const seq = first + i / TEXTS_PER_EVENT;
      if (seq > afterSeq) events.push({ seq, epoch, event: fields[i + 1] as EventName, data: fields[i + 3] ?? '' });
    }
  }
  return events;
}
