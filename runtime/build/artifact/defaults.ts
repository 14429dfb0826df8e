/** Memory of an instance by default: 64 MiB, in pages of 64 KiB. */
export const DEFAULT_MEMORY_PAGES = 1024;
/** Most that can be asked for: what 32-bit memory can address. */
export const MAX_MEMORY_PAGES = 65536;
