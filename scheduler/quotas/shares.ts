const MIB = 2 ** 20;
/** A small Redis gives a tenant up to this much: the bundled functions alone have about 100 MiB of components. */
const SMALL_BYTES = 256 * MIB;
const LEAST_DISK_BYTES = 1024 * MIB;

/**
 * Default limit of a tenant's bytes in Redis: a quarter of Redis's memory, so that no tenant alone fills it for the others. In a small
 * Redis (up to 1 GiB) the limit is half of it, at most 256 MiB.
 */
export function redisShareBytes(redisBytes: number): number {
  return Math.floor(Math.max(redisBytes / 4, Math.min(redisBytes / 2, SMALL_BYTES)));
}

/** Default limit of a tenant's compiled versions on disk: an eighth of the disk that holds them, and 1 GiB at least. */
export function diskShareBytes(diskBytes: number): number {
  return Math.floor(Math.max(diskBytes / 8, LEAST_DISK_BYTES));
}
