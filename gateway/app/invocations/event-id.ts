import type { Position } from '#scheduler/invocations/types.ts';

/** The position of a reader that has no event yet. */
export const BEGINNING: Position = { epoch: null, seq: 0 };

/** Id of an event, `<epoch>-<number>`. A number alone is valid too: ids of an older Pie have no epoch. */
export const EVENT_ID = /^(?:\d{1,15}-)?\d{1,15}$/;

/** The id of an event or of a reader's position. */
export function eventId({ epoch, seq }: Position): string {
  return epoch === null ? String(seq) : `${epoch}-${seq}`;
}

/** The position that an id names; null when the text is not an id. */
export function positionOf(id: string): Position | null {
  if (!EVENT_ID.test(id)) return null;
  const [seq, epoch] = id.split('-').reverse().map(Number);
  return { epoch: epoch ?? null, seq: seq ?? 0 };
}

/**
 * True when a reader at `position` has all events up to `last`. False for another epoch, even with a larger number: Redis may have lost the
 * events that the reader has.
 */
export function hasUpTo(position: Position, last: Position): boolean {
  return position.seq >= last.seq && (position.epoch === null || position.epoch === last.epoch);
}
