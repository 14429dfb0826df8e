/** The runtime's program: `node runtime/main.ts`. */
import { loadConfig } from '#infra/config.ts';
import { runtimeName } from '#infra/runtimes.ts';
import { enterPermissions } from './permissions.ts';

enterPermissions();
// Not before the call above, which may replace the process.
const [{ openLog }, { runProcess }] = await Promise.all([import('#infra/log.ts'), import('./process.ts')]);
try {
  await runProcess();
} catch (error) {
  const log = openLog(runtimeName(), loadConfig().log);
  // These two errors address the operator, who needs no stack trace.
  if (error instanceof Error && ['IsolationError', 'SharedDirectoryError'].includes(error.name))
    log.error({}, error.message);
  else log.error({ error }, 'the runtime ends');
  process.exit(1);
}
