/** Key of runtime memory, in MiB, among counts of pages by model. No model has such a name. */
export const MEMORY = '#memory';

/** Part of slots and pages kept for tenants that hold little, so a newcomer need not wait for another tenant's invocation to end. */
export const DEFAULT_RESERVE = 1 / 16;

/** Peak usage of a run, including its children. */
export interface Peak {
  /** KV pages by model. */
  readonly pages: Readonly<Record<string, number>>;
  readonly memoryMb: number;
}

/** Redis forgets the learned peaks of a version this long after its last run. */
export const LEARNED_MS = 30 * 86_400_000;

/** Arguments that pass a peak to a script: each model, and `MEMORY`, followed by its peak, rounded up. */
export function peakPairs({ pages, memoryMb }: Peak): (string | number)[] {
  return Object.entries({ ...pages, [MEMORY]: memoryMb }).flatMap(([model, peak]) => [
    model,
    Math.max(0, Math.ceil(peak)),
  ]);
}
