/** Name of the runtime of one machine. */
export const RUNTIME = 'runtime-1';
/** Of the one beside it that only tenants' first few invocations come to. */
export const EXPRESS_RUNTIME = 'runtime-express';
