const MIB = 2 ** 20;
/** A small Redis gives a tenant half of itself up to this: the bundled functions alone have some 100 MiB of components. */
const SMALL_BYTES = 256 * MIB;
const LEAST_DISK_BYTES = 1024 * MIB;

/**
 * What a tenant may keep in Redis when nothing else is set: a quarter of what Redis may hold, so that no tenant alone fills it for the others, and
 * of a small one (up to 1 GiB) half or 256 MiB.
 */
export function redisShareBytes(redisBytes: number): number {
  return Math.floor(Math.max(redisBytes / 4, Math.min(redisBytes / 2, SMALL_BYTES)));
}

/** What the compiled versions of a tenant may take when nothing else is set: an eighth of the disk that they lie on, and 1 GiB at least. */
export function diskShareBytes(diskBytes: number): number {
  return Math.floor(Math.max(diskBytes / 8, LEAST_DISK_BYTES));
}
