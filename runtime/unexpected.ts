import { failureReporter } from '#scheduler/policies/text-for-tenant.ts';

/** Logs a failure that no caller has caused. Returns its text for the caller, without the host's paths. */
export const unexpected = failureReporter((caught) =>
  console.error('runtime: a call failed for a reason that is not its caller’s:', caught),
);
