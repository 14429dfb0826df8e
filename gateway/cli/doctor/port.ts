import { loadConfig } from '#infra/config.ts';
import { assertPortFree } from '#infra/port.ts';
import type { Finding } from './finding.ts';

/**
 * Checks that the gateway of the configuration can listen.
 *
 * @throws ConfigError when it cannot, or the configuration is wrong
 */
export async function checkPort(environment: NodeJS.ProcessEnv = process.env): Promise<Finding> {
  const config = loadConfig(environment);
  if (!config.machine.roles.includes('gateway')) {
    return { name: 'port', state: 'ok', detail: 'this machine runs no gateway' };
  }
  await assertPortFree(config);
  return { name: 'port', state: 'ok', detail: `${config.port} on ${config.host} is free` };
}
