import type { Logger } from './log.ts';

/** Variable that the supervisor sets for each child. The child's standard input closes when the supervisor dies, even by SIGKILL. */
export const LIFELINE_VARIABLE = 'PIE_LIFELINE';

/** Longest time that a child may take to end after its supervisor's death. */
const EXIT_DEADLINE_MS = 1500;

/**
 * Ends this process soon after its supervisor's death (even by SIGKILL). `stop` runs first; the process exits within 1.5 s in any case.
 * Does nothing without a supervisor.
 */
export function exitWithParent(log: Logger, stop: () => Promise<void> | void): void {
  if (process.env[LIFELINE_VARIABLE] !== 'stdin') return;
  let isEnding = false;
  const end = () => {
    if (isEnding) return;
    isEnding = true;
    setTimeout(() => process.exit(1), EXIT_DEADLINE_MS);
    Promise.resolve()
      .then(stop)
      .catch((error: unknown) => log.error({ error }, 'stopping after the death of the supervisor failed'))
      .finally(() => process.exit(1));
  };
  process.stdin.on('end', end).on('close', end).on('error', end).resume();
}
