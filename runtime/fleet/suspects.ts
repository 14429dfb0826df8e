/** A guest that moved (computed, began or was answered) at most this long before its sandbox last spoke may have silenced the sandbox. */
const RECENT_MS = 1000;
/** A sandbox speaks every 100 ms. One that has been silent for this long passes nothing on to its guests. */
const SILENT_MS = 500;

/** Time of an event that moves a guest now, by `performance.now`; null when the sandbox is too silent to pass it on. Pure. */
export const movedAt = (heardAtMs: number, nowMs: number): number | null =>
  nowMs - heardAtMs < SILENT_MS ? nowMs : null;

/** A guest of a sandbox that was lost. */
export interface Inhabitant {
  /** Time at which the guest last computed, began or was answered, as far as the runtime knows. */
  readonly movedAtMs: number;
}

/**
 * Returns the guests of a lost sandbox that may have been computing. When no guest is known to have moved, returns all of them, unless
 * the sandbox stood still: then none computed. Pure.
 */
export function suspectsOf<T extends Inhabitant>(
  all: readonly T[],
  heardAtMs: number,
  stoodStill: boolean,
): readonly T[] {
  const moved = all.filter(({ movedAtMs }) => heardAtMs - movedAtMs < RECENT_MS);
  return moved.length > 0 || stoodStill ? moved : all;
}
