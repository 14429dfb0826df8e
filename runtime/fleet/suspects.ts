/** A guest that did something so long before its sandbox spoke last, or later, may have been what kept it from speaking again. */
const RECENT_MS = 1000;
/** What reaches a sandbox that has been silent for longer moves nothing in it: it speaks every 100 ms. */
const SILENT_MS = 500;

/** When something that can move a guest reached its sandbox, by `performance.now`; null when it cannot have. Pure. */
export const movedAt = (heardAtMs: number, nowMs: number): number | null =>
  nowMs - heardAtMs < SILENT_MS ? nowMs : null;

/** A guest of a sandbox that was lost. */
export interface Inhabitant {
  /** When it last computed, was begun or was answered, as far as is known here. */
  readonly movedAtMs: number;
}

/**
 * Which guests of a lost sandbox may have been computing. Where it is known of none that it did anything, each may have, unless the sandbox
 * stood still: then none computed. Pure.
 */
export function suspectsOf<T extends Inhabitant>(
  all: readonly T[],
  heardAtMs: number,
  stoodStill: boolean,
): readonly T[] {
  const moved = all.filter(({ movedAtMs }) => heardAtMs - movedAtMs < RECENT_MS);
  return moved.length > 0 || stoodStill ? moved : all;
}
