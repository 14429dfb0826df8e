import type { NewEvent } from '#scheduler/invocations/types.ts';

/** Most bytes of one call to the store: other calls wait for it. */
const MAX_BATCH_BYTES = 128 << 10;
/** Most events of one call: the store takes at most this many in one step, with the usage of the last. */
const MAX_BATCH_EVENTS = 1000;

/** Takes the events of the next call from the front of a queue. */
export function takeBatch(queue: NewEvent[]): { readonly batch: NewEvent[]; readonly bytes: number } {
  let bytes = 0;
  let count = 0;
  for (const { data } of queue) {
    if (count === MAX_BATCH_EVENTS || (count > 0 && bytes + data.length > MAX_BATCH_BYTES)) break;
    bytes += data.length;
    count++;
  }
  return { batch: queue.splice(0, count), bytes };
}

/** Characters of the events' data. */
export const lengthOf = (events: readonly NewEvent[]): number => events.reduce((sum, { data }) => sum + data.length, 0);
