import type { LatencyTargets } from '../invocations/types.ts';

/** Bounds of the latency targets in milliseconds, as `[minimum, maximum]`. */
export const LATENCY_BOUNDS = {
  firstTokenMs: [1, 60_000],
  perTokenMs: [1, 10_000],
} as const satisfies Record<keyof LatencyTargets, readonly [number, number]>;

/** True when both targets are whole numbers within their bounds. */
export function areLatencyTargets(targets: LatencyTargets): boolean {
  return (['firstTokenMs', 'perTokenMs'] as const).every((name) => {
    const [least, most] = LATENCY_BOUNDS[name];
    return Number.isInteger(targets[name]) && targets[name] >= least && targets[name] <= most;
  });
}
