import type { Logger } from '#scheduler/policies/logger.ts';
import { failureReporter } from '#scheduler/policies/text-for-tenant.ts';

let processLog: Logger | undefined;

/** Sets the log of {@link unexpected} for the whole process, because the functions that convert errors have no object with a log at hand. */
export function logUnexpected(log: Logger): void {
  processLog = log;
}

/** Logs a failure that no caller has caused. Returns its text for the caller, without the host's paths. */
export const unexpected = failureReporter((error) =>
  processLog?.error({ error }, 'a call failed for a reason that is not its caller’s'),
);
