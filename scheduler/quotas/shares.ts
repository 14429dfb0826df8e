const MIB = 2 ** 20;
/** Upper bound of a tenant's half of a small Redis. It leaves room beside the bundled functions, whose components take about 100 MiB. */
const SMALL_BYTES = 256 * MIB;
const LEAST_DISK_BYTES = 1024 * MIB;

/**
 * Default limit of a tenant's bytes in Redis: a quarter of Redis's memory, so that no tenant alone fills Redis for the others. If Redis has up to
 * 1 GiB, the limit is half of its memory, at most 256 MiB.
 */
export function redisShareBytes(redisBytes: number): number {
  return Math.floor(Math.max(redisBytes / 4, Math.min(redisBytes / 2, SMALL_BYTES)));
}

/** Default limit of a tenant's compiled versions on disk: an eighth of the disk that holds them, and 1 GiB at least. */
export function diskShareBytes(diskBytes: number): number {
  return Math.floor(Math.max(diskBytes / 8, LEAST_DISK_BYTES));
}
