/**
 * A guest *moves* when it computes, begins or is answered. A guest that moved at most this long before its sandbox's last message may have
 * silenced the sandbox.
 */
const RECENT_MS = 1000;
/** A sandbox sends a message every 100 ms. A sandbox that has been silent for this long passes nothing on to its guests. */
const SILENT_MS = 500;

/** Returns `nowMs` for an event that moves a guest now; null when the sandbox has been silent and therefore does not pass the event on. Pure. */
export const movedAt = (heardAtMs: number, nowMs: number): number | null =>
  nowMs - heardAtMs < SILENT_MS ? nowMs : null;

/** A guest of a sandbox that was lost. */
export interface Inhabitant {
  /** Time at which the guest last moved, as far as the runtime knows. */
  readonly movedAtMs: number;
}

/**
 * Returns the guests of a lost sandbox that may have been computing: those that moved recently. When no guest is known to have moved, returns all
 * guests. If the sandbox then stood still (its thread was stopped or waited for something other than a core), no guest computed, and it returns
 * none. Pure.
 *
 * @param heardAtMs time of the sandbox's last message
 */
export function suspectsOf<T extends Inhabitant>(
  all: readonly T[],
  heardAtMs: number,
  stoodStill: boolean,
): readonly T[] {
  const moved = all.filter(({ movedAtMs }) => heardAtMs - movedAtMs < RECENT_MS);
  return moved.length > 0 || stoodStill ? moved : all;
}
