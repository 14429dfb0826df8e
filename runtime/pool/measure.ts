import { randomUUID } from 'node:crypto';
import type { Program } from '../lowering/instance.ts';
import type { InstancePool } from './pool.ts';

/** How long launches take, measured when a component is built. */
export interface MeasuredStarts {
  /** With an empty pool: read, compiled and instantiated. */
  readonly coldStartMs: number;
  /** Of a ready instance; null where none are kept. */
  readonly warmStartMs: number | null;
  /** Memory of a ready instance; null where none are kept. */
  readonly instanceBytes: number | null;
}

const LAUNCHES = 5;
/** Nothing else runs on this thread meanwhile: of an instance that takes longer to make, one launch says enough. */
const SLOW_MS = 20;

/**
 * Launches a program some times with an empty pool, then from a full one; medians. The instances are thrown away. Throws when one cannot be made.
 *
 * @param loadMs what reading and compiling it took in this process.
 */
export function measureStarts(pool: InstancePool, program: Program, loadMs: number): MeasuredStarts {
  // Apart from the pool that serves the program: nothing of that is taken or counted.
  const key = `measured/${randomUUID()}`;
  pool.admit(key, program);
  try {
    const first = pool.take(key).instantiateMs;
    const launches = first > SLOW_MS ? 1 : LAUNCHES;
    const made = [first, ...Array.from({ length: launches - 1 }, () => pool.take(key).instantiateMs)];
    const instanceBytes = pool.fill(key, launches);
    const taken = Array.from({ length: launches }, () => {
      const from = performance.now();
      pool.take(key);
      return performance.now() - from;
    });
    return { coldStartMs: rounded(loadMs + median(made)), warmStartMs: rounded(median(taken)), instanceBytes };
  } finally {
    pool.forget(key);
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;
