import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** A message from a worker: it has started, or it has a job's outcome. */
export type Sent<Value> =
  | { readonly tag: 'ready' }
  /** `cpuMs` is the CPU time of the job. */
  | { readonly tag: 'answer'; readonly outcome: Outcome<Value>; readonly cpuMs: number };
