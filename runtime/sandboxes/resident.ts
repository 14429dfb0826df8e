const KIB = 1024;

/**
 * Resident memory in the text of `/proc/PID/status`, in bytes; 0 when it is missing. `/proc/PID/statm` counts pages, whose size differs among
 * machines.
 */
export const residentBytes = (status: string): number => Number(/^VmRSS:\s*(\d+) kB$/m.exec(status)?.[1] ?? 0) * KIB;
