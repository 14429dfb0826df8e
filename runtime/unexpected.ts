import { failureReporter } from '#scheduler/policies/told-text.ts';

/** Logs a failure that no caller has caused. Returns its text for the caller, without the host's paths. */
export const unexpected = failureReporter((caught) =>
  console.error('runtime: a call failed for a reason that is not its caller’s:', caught),
);
