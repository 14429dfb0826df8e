import type { EventName, InvocationEvent } from './types.ts';

/** Events of one live message: sequence number, event and data, three times over with NUL between (JSON text holds none). */
export function parseLive(payload: Buffer): InvocationEvent[] {
  const parts = payload.toString('utf8').split('\0');
  const events: InvocationEvent[] = [];
  for (let i = 0; i + 2 < parts.length; i += 3) {
    events.push({ seq: Number(parts[i]), event: parts[i + 1] as EventName, data: parts[i + 2] ?? '' });
  }
  return events;
}

const BEGUN = '0\0begun\0';

/** The runtime whose attempt begins and shows its events itself; null for a message that holds events. */
export function parseBegun(payload: Buffer): string | null {
  return payload[0] === BEGUN.charCodeAt(0) ? payload.toString('utf8', BEGUN.length) : null;
}

/** An entry of the stream, `[id, [field, value, …]]`. */
export type Entry = readonly [id: string, fields: readonly string[]];

export function parseEntry(entry: Entry): InvocationEvent {
  const [id, fields] = entry;
  const value = (name: string): string => fields[fields.indexOf(name) + 1] ?? '';
  return { seq: Number.parseInt(id, 10), event: value('e') as EventName, data: value('d') };
}
