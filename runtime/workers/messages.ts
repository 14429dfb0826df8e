import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** A worker's message: that the worker has started, or the outcome of a job. */
export type Sent<Value> =
  | { readonly tag: 'ready' }
  /** `cpuMs` is the CPU time of the job. */
  | { readonly tag: 'answer'; readonly outcome: Outcome<Value>; readonly cpuMs: number };
