import { openLog } from '#infra/log.ts';
import type { ChildSpec } from '#infra/supervisor/child.ts';
import { Supervisor } from '#infra/supervisor/supervisor.ts';

/**
 * Starts a process, runs the work once the process is ready, and ends the process afterwards. An abort before the process is ready ends the
 * process; the work handles a later abort itself.
 * @throws the signal's reason, ChildStartError
 */
export async function withProcess<T>(
  spec: ChildSpec,
  { logsDirectory, signal }: { readonly logsDirectory: string; readonly signal: AbortSignal },
  work: () => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const supervisor = new Supervisor({ logsDirectory, log: openLog('pie'), report: () => undefined });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= supervisor.stop([]);
    return stopped;
  };
  signal.addEventListener('abort', stop, { once: true });
  try {
    await supervisor
      .start([spec])
      .catch((error: unknown) => {
        if (!signal.aborted) throw error;
      })
      .finally(() => signal.removeEventListener('abort', stop));
    signal.throwIfAborted();
    return await work();
  } finally {
    await stop();
  }
}
