/** Bounds and names that schemas, the control plane and clients share. No package is loaded for them. */
import { LOG_LEVEL_CASES } from '#wit/generated/host.ts';

/** From the least severe on. */
export const LEVELS = LOG_LEVEL_CASES;

/** Maximum past log lines of one request. */
export const MAX_LOG_LINES = 10_000;

/** Maximum invocations of one page. */
export const MAX_PAGE = 200;

/** Default of `Limits.collectedBytes`. */
export const COLLECTED_BYTES = 16 * 1024 * 1024;

/** Lengths of the spans of usage, in UTC. */
export const SPANS = ['hour', 'day', 'month'] as const;

export type Span = (typeof SPANS)[number];
