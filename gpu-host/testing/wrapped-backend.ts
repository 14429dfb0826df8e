import type { Backend, SequenceInput } from '../backends/backend.ts';

/** A backend with some of its methods replaced. */
export function wrapBackend(inner: Backend, replaced: Partial<Backend>): Backend {
  return new Proxy(inner, {
    get(target, key) {
      const own: unknown = Reflect.get(key in replaced ? replaced : target, key);
      return typeof own === 'function' ? own.bind(key in replaced ? replaced : target) : own;
    },
  });
}

/** What a backend was asked. */
export interface Watched {
  readonly backend: Backend;
  /** The batches, in order. */
  readonly batches: (readonly SequenceInput[])[];
  /** States projected apart. */
  projected: number;
}

/** A backend whose device steps can be counted. */
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
