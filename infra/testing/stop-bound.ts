import type { Config } from '../config.ts';
import { machineProcesses, privateRedis, stopStages } from '../processes.ts';

/** Longest time that a supervisor takes to stop the processes of a machine. Makes the folder of a private Redis. */
export function stopBoundMs(config: Config): number {
  const { redis } = config;
  const specs = [...machineProcesses(config), ...(redis.kind === 'private' ? [privateRedis(config, redis)] : [])];
  const stages = stopStages(config);
  const rest = specs.map(({ name }) => name).filter((name) => !stages.flat().includes(name));
  return [...stages, rest]
    .map((names) => specs.filter(({ name }) => names.includes(name)).map(({ stopTimeoutMs }) => stopTimeoutMs))
    .reduce((sum, times) => sum + Math.max(0, ...times), 0);
}
