/** Memory of an instance by default: 64 MiB, in pages of 64 KiB. */
export const DEFAULT_MEMORY_PAGES = 1024;
/** Pages of a memory of 4 GiB, the largest with addresses of 32 bits. */
export const MAX_MEMORY_PAGES = 65_536;
