/** Memory of an instance by default: 64 MiB, in pages of 64 KiB. */
export const DEFAULT_MEMORY_PAGES = 1024;
