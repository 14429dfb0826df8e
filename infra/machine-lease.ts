import { readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { MachineLease, MachineNameTaken } from '#scheduler/machines/lease.ts';
import { Store } from '#scheduler/store/store.ts';
import { type Config, ConfigError } from './config.ts';
import { connectRedis } from './redis.ts';
import { shownRedis } from './redis-settings.ts';

/** Longest wait for a shared Redis at the start. */
const REDIS_DEADLINE_MS = 10_000;

/**
 * Claims this machine's name in Redis and registers its GPU hosts. Returns a function that removes the machine; null when the
 * signal aborts.
 * @param onTaken called when another supervisor has taken the name during a pause of this one
 * @throws ConfigError when Redis does not answer, or another running supervisor has the name
 */
export async function claimMachine(
  config: Config,
  { onTaken, signal }: { readonly onTaken: (error: ConfigError) => void; readonly signal: AbortSignal },
): Promise<(() => Promise<void>) | null> {
  const redis = connectRedis(config);
  let why = '';
  redis.on('error', (error: Error) => {
    why = error.message;
  });
  const store = new Store(redis, { deadlineMs: REDIS_DEADLINE_MS });
  const { name, roles } = config.machine;
  const machine = {
    ...{ name, roles, host: os.hostname(), pid: process.pid, version: versionOf(config) },
    gpuHosts: config.gpuHosts.map(({ name: host, address }) => ({ name: host, address })),
  };
  try {
    await store.ping();
  } catch (cause) {
    redis.disconnect();
    const said = why || (cause instanceof Error ? cause.message : String(cause));
    throw new ConfigError(`Redis at ${shownRedis(config.redis)} cannot be used: ${said}`, { cause });
  }
  try {
    const lease = await MachineLease.claim(store, machine, {
      // The claim of the home keeps other supervisors from a private Redis.
      force: config.redis.kind === 'private',
      onTaken: (taken) => onTaken(nameTaken(taken)),
      signal,
    });
    return async () => {
      await lease.release().catch(() => undefined);
      redis.disconnect();
    };
  } catch (error) {
    redis.disconnect();
    if (signal.aborted) return null;
    throw error instanceof MachineNameTaken ? nameTaken(error) : error;
  }
}

function nameTaken(taken: MachineNameTaken): ConfigError {
  return new ConfigError(
    `${taken.message} Machines that share a Redis need different names: set PIE_MACHINE, or name below [machine] in pie.toml.`,
    { cause: taken },
  );
}

function versionOf({ root }: Config): string {
  const { version }: { version: string } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  return version;
}
