import { openLog } from '#infra/log.ts';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { openConnection } from '#scheduler/store/connection.ts';
import { startRuntime } from '../runtime.ts';
import { TEST_SANDBOXES } from './sandboxes.ts';

/**
 * A runtime in its own process, for tests that kill it. Arguments: name, socket of Redis, socket of the GPU host,
 * directory of artifacts, lease in ms.
 */
const [name = '', redis = '', gpuHost = '', artifactsDirectory = '', leaseMs = ''] = process.argv.slice(2);
const log = openLog('runtime');
await startRuntime({
  name,
  scheduler: openScheduler({ log, connect: () => openConnection(redis), leaseMs: Number(leaseMs) }),
  gpuHosts: [{ name: 'gpu-host-1', address: gpuHost }],
  artifactsDirectory,
  concurrency: 64,
  sandboxes: TEST_SANDBOXES,
  limits: DEFAULT_LIMITS,
  log,
});
// The pipe ends together with the test's process.
process.stdin.on('end', () => process.exit()).resume();
console.log('ready');
