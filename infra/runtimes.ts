/** Name of the runtime of one machine. */
export const RUNTIME = 'runtime-1';
