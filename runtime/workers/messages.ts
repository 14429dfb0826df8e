import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** What a worker says: that it has started, or what it makes of a job. */
export type Sent<Value> =
  | { readonly tag: 'ready' }
  | { readonly tag: 'answer'; readonly outcome: Outcome<Value> /** That the job took. */; readonly cpuMs: number };
