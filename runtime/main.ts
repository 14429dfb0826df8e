/** The runtime's program: `node runtime/main.ts`. */
import { runtimeName } from '#infra/runtimes.ts';
import { enterPermissions } from './permissions.ts';

enterPermissions();
// Import these modules only after the call above, which may replace the process.
const [{ logEnding, openLog }, { runProcess }] = await Promise.all([import('#infra/log.ts'), import('./process.ts')]);
try {
  await runProcess();
} catch (error) {
  const log = openLog(runtimeName());
  logEnding(log, error, 'the runtime ends');
  process.exit(1);
}
