import { setTimeout as sleep } from 'node:timers/promises';
import { loadConfig } from '#infra/config.ts';
import { exitWithParent } from '#infra/lifeline.ts';
import { announceReady } from '#infra/ready.ts';
import { connectRedis } from '#infra/redis.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { connectionOptions } from '#scheduler/store/connection.ts';
import { startRuntime } from './runtime.ts';

/** How often Redis is asked for at the start, until it is there. */
const PING_EVERY_MS = 200;

/** The runtime process: takes invocations from the line and runs them, until it is told to stop or its supervisor is gone. */
export async function runProcess(): Promise<void> {
  const config = loadConfig();
  const report = (error: unknown): void =>
    console.error('runtime:', error instanceof Error ? (error.stack ?? error.message) : error);
  const scheduler = openScheduler({
    connect: () => connectRedis(config, connectionOptions()),
    onError: report,
  });
  while (!(await answers(scheduler.ping(1000)))) await sleep(PING_EVERY_MS);
  const runtime = await startRuntime({
    name: process.env.PIE_RUNTIME_ID ?? 'runtime-1',
    scheduler,
    gpuHosts: config.gpuHosts.map(({ address }) => address),
    artifactsDirectory: config.artifactsDirectory,
    concurrency: config.runtime.concurrency,
    poolMemoryMb: config.runtime.poolMemoryMb,
    limits: config.runtime.limits,
    overcommit: config.admission.overcommit,
    privateHosts: config.http.privateHosts,
    onError: report,
  });

  let stopping: Promise<void> | undefined;
  const stop = (drainMs: number): Promise<void> => {
    stopping ??= runtime
      .stop(drainMs)
      .then(() => scheduler.close())
      .catch(report)
      .finally(() => process.exit(0));
    return stopping;
  };
  exitWithParent(() => stop(0));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(config.drainMs));
  announceReady({
    detail: {
      id: runtime.id,
      models: runtime.models.list().map(({ name }) => name),
      slots: config.runtime.concurrency,
    },
  });
}

async function answers(ping: Promise<void>): Promise<boolean> {
  try {
    await ping;
    return true;
  } catch {
    return false;
  }
}
