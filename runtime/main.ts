/** The runtime's program: `node runtime/main.ts`. */
import { runtimeName } from '#infra/runtimes.ts';
import { enterPermissions } from './permissions.ts';

enterPermissions();
// Not before the call above, which may replace the process.
const [{ openLog, whyItEnds }, { runProcess }] = await Promise.all([import('#infra/log.ts'), import('./process.ts')]);
try {
  await runProcess();
} catch (error) {
  const log = openLog(runtimeName());
  log.error(whyItEnds(error), 'the runtime ends');
  process.exit(1);
}
