/**
 * Default limits by the memory and cores of a machine. The limits of memory are upper bounds, not reservations. They may add up to more than
 * the machine has: a quarter for Redis, a quarter for idle sandboxes, half for inferlets; and models need memory, too.
 */
import os from 'node:os';

/** Resident memory of an idle sandbox, measured: 68 to 98 MB. */
const IDLE_SANDBOX_MB = 100;
const MIN_SANDBOXES = 4;
const MAX_SANDBOXES = 64;

/** Most sandboxes: as many as fit into a quarter of the machine's memory while idle, but at least 4 and at most 64. */
export const sandboxesOf = (memoryMb: number): number =>
  Math.max(MIN_SANDBOXES, Math.min(MAX_SANDBOXES, Math.floor(memoryMb / 4 / IDLE_SANDBOX_MB)));

/** Memory limit of a private Redis: a quarter of the machine's. The fork that compacts its log may take as much again. */
export const redisShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 4));

/** Most builds at once: half of the cores, at most eight, so that running inferlets keep the other half. */
export const buildsAtOnce = (cores: number): number => Math.min(8, Math.max(1, Math.floor(cores / 2)));

/** Memory limit of all running inferlets, beside the memory that idle sandboxes take: half of the machine's, because of Redis and the models. */
export const runtimeShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 2));

/** Memory of the machine in MiB, or the container's limit when that is smaller. */
export function machineMemoryMb(): number {
  // 0 when the limit is unknown.
  const constrained = process.constrainedMemory();
  return Math.floor(Math.min(os.totalmem(), constrained > 0 ? constrained : Number.POSITIVE_INFINITY) / 2 ** 20);
}
