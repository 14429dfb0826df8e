/** Memory of an instance by default: 64 MiB, in pages of 64 KiB. */
export const DEFAULT_MEMORY_PAGES = 1024;
/** Most memory pages that can be requested: 32-bit memory cannot address more. */
export const MAX_MEMORY_PAGES = 65536;
