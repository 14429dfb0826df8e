/**
 * Default limits by the memory and cores of a machine. The limits of memory are upper bounds, not reservations: a quarter of the memory for Redis, a
 * quarter for idle sandboxes and half for inferlets. Together with the memory of the models they may exceed the machine's memory.
 */
import os from 'node:os';

/** Resident memory of an idle sandbox, measured: 68 to 98 MB. */
const IDLE_SANDBOX_MB = 100;
const MIN_SANDBOXES = 4;
const MAX_SANDBOXES = 64;

/** Maximum sandboxes: as many as fit into a quarter of the machine's memory while idle, but at least 4 and at most 64. */
export const sandboxesOf = (memoryMb: number): number =>
  Math.max(MIN_SANDBOXES, Math.min(MAX_SANDBOXES, Math.floor(memoryMb / 4 / IDLE_SANDBOX_MB)));

/** Memory limit of a private Redis: a quarter of the machine's. The fork that compacts its log may take as much again. */
export const redisShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 4));

/** Maximum builds at once: half of the cores, at most eight, so that running inferlets keep the other half. */
export const buildsAtOnce = (cores: number): number => Math.min(8, Math.max(1, Math.floor(cores / 2)));

/** Memory limit of all running inferlets, beside the memory of idle sandboxes: half of the machine's. Redis and the models need memory, too. */
export const runtimeShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 2));

/** Memory of the machine in MiB, or the container's limit when that is smaller. */
export function machineMemoryMb(): number {
  // 0 when the limit is unknown.
  const constrained = process.constrainedMemory();
  return Math.floor(Math.min(os.totalmem(), constrained > 0 ? constrained : Number.POSITIVE_INFINITY) / 2 ** 20);
}
