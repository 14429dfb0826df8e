import os from 'node:os';

/** Resident memory of an idle sandbox, measured: 68 to 98 MB. */
const SANDBOX_MB = 100;
const MAX_SANDBOXES = 64;

/** Sandboxes for a machine with this much memory: all of them together use a quarter of it while idle. */
export const sandboxesOf = (memoryMb: number): number =>
  Math.max(4, Math.min(MAX_SANDBOXES, Math.floor(memoryMb / 4 / SANDBOX_MB)));

/** Memory limit of a private Redis: a quarter of the machine, since models and runtimes share it and Redis forks to compact its log. */
export const redisShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 4));

/** Builds at once: half of the cores, at most eight, so that running inferlets keep the other half. */
export const buildsAtOnce = (cores: number): number => Math.min(8, Math.max(1, Math.floor(cores / 2)));

/** Memory for running inferlets: half of the machine, since Redis may use a quarter and models use the rest. */
export const runtimeShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 2));

/** Memory of the machine, or the container's limit when that is smaller. */
export function machineMemoryMb(): number {
  const constrained = process.constrainedMemory();
  return Math.floor(Math.min(os.totalmem(), constrained > 0 ? constrained : Number.POSITIVE_INFINITY) / 2 ** 20);
}
