import type { Backend, SequenceInput } from '../backends/backend.ts';

/** Returns a backend like `inner` with some of its members replaced. */
export function wrapBackend(inner: Backend, replacements: Partial<Backend>): Backend {
  return new Proxy(inner, {
    get(target, key) {
      const owner = key in replacements ? replacements : target;
      const member: unknown = Reflect.get(owner, key);
      return typeof member === 'function' ? member.bind(owner) : member;
    },
  });
}

/** Throws when two inputs of a batch write one slot: a device may keep the keys of either. */
export function checkDistinctWrites(batch: readonly SequenceInput[]): void {
  const slots = batch.flatMap(({ writes }) => [...writes]);
  if (new Set(slots).size < slots.length) throw new Error(`Two inputs of a batch write one slot: ${slots}.`);
}

/** A record of a backend's calls. */
export interface Watched {
  readonly backend: Backend;
  /** The batches, in order. */
  readonly batches: (readonly SequenceInput[])[];
  /** Number of states projected outside a forward. */
  projected: number;
}

/** Records the device steps of a backend. */
export function watchBackend(inner: Backend): Watched {
  const watched: Watched = {
    batches: [],
    projected: 0,
    backend: wrapBackend(inner, {
      forward(batch) {
        watched.batches.push(batch);
        return inner.forward(batch);
      },
      project(states, count, topK) {
        watched.projected += count;
        return inner.project(states, count, topK);
      },
    }),
  };
  return watched;
}
