import type { EventName, InvocationEvent } from './types.ts';

/** Events of one live message: `<epoch>-<number>`, event and data for each, all separated by NUL (which JSON text never holds). */
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

/** Events of messages that are still in use, because all followers of an invocation get the same message. */
const parsedEvents = new WeakMap<Buffer, readonly InvocationEvent[]>();

const BEGUN = Buffer.from('0\0begun\0');

/** The runtime whose attempt begins and shows its own events; null for a message that holds events. */
export function parseBegun(payload: Buffer): string | null {
  return payload.subarray(0, BEGUN.length).equals(BEGUN) ? payload.toString('utf8', BEGUN.length) : null;
}

/** An entry of the stream, `[<number of its last event>-<epoch>, ['e', event, 'd', data, …]]`. */
export type Entry = readonly [id: string, fields: readonly string[]];

/** The events of entries with numbers after `afterSeq`. */
export function parseEntries(entries: readonly Entry[], afterSeq: number): InvocationEvent[] {
  const events: InvocationEvent[] = [];
  for (const [id, fields] of entries) {
    const [last, epoch] = id.split('-').map(Number) as [number, number];
    const first = last + 1 - fields.length / 4;
    for (let i = 0; i < fields.length; i += 4) {
      const seq = first + i / 4;
      if (seq > afterSeq) events.push({ seq, epoch, event: fields[i + 1] as EventName, data: fields[i + 3] ?? '' });
    }
  }
  return events;
}
