import { setTimeout as sleep } from 'node:timers/promises';
import { hostFamilies } from '#gpu-host/protocol/host-metrics.ts';
import { loadConfig } from '#infra/config.ts';
import { exitWithParent } from '#infra/lifeline.ts';
import { announceReady } from '#infra/ready.ts';
import { connectRedis } from '#infra/redis.ts';
import { liveSocket, runtimeName } from '#infra/runtimes.ts';
import type { ProcessFamilies } from '#infra/telemetry/prometheus.ts';
import { publishMetrics } from '#infra/telemetry/publisher.ts';
import { openTelemetry } from '#infra/telemetry/telemetry.ts';
import { vitalFamilies } from '#infra/telemetry/vitals.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { connectionOptions } from '#scheduler/store/connection.ts';
import { startRuntime } from './runtime.ts';

/** Interval of pings at the start, until Redis answers. */
const PING_EVERY_MS = 200;

/** The runtime process: takes invocations from the line and runs them, until it gets a stop signal or its supervisor is gone. */
export async function runProcess(): Promise<void> {
  const config = loadConfig();
  const report = (error: unknown): void =>
    console.error('runtime:', error instanceof Error ? (error.stack ?? error.message) : error);
  const scheduler = openScheduler({
    connect: () => connectRedis(config, connectionOptions()),
    masterKeys: openMasterKeys(config.home, { create: false }),
    retention: config.retention,
    onError: report,
  });
  while (!(await answers(scheduler.ping(1000)))) await sleep(PING_EVERY_MS);
  const name = runtimeName();
  const { concurrency, sandboxes } = config.runtime;
  const telemetry = await openTelemetry({ settings: config.telemetry, room: 'runtime', process: name });
  const gpuHostNames = config.gpuHosts.map((host) => host.name);
  const runtime = await startRuntime({
    name,
    scheduler,
    gpuHosts: config.gpuHosts.map(({ address }) => address),
    gpuHostNames,
    spread: config.spread,
    artifactsDirectory: config.artifactsDirectory,
    liveSocket: liveSocket(config, name),
    concurrency,
    isolation: config.runtime.isolation,
    sandboxes,
    builds: config.runtime.builds,
    memoryMb: config.runtime.memoryMb,
    limits: config.runtime.limits,
    overcommit: config.admission.overcommit,
    reserve: config.admission.reserve,
    privateHosts: config.http.privateHosts,
    instruments: telemetry,
    onError: report,
  });
  // Publish the GPU hosts' metrics here: they talk only to runtimes.
  const snapshots = async (): Promise<ProcessFamilies[]> => {
    const hosts = (await runtime.gpuHostStats()).map((stats, i) => {
      const host = gpuHostNames[i] ?? '';
      const vitals = stats?.vitals ? vitalFamilies(stats.vitals) : [];
      return { process: host, families: stats ? [...hostFamilies(stats, host), ...vitals] : [] };
    });
    return [{ process: name, families: await telemetry.collect() }, ...hosts.filter(({ families }) => families.length)];
  };
  const stopPublishing = publishMetrics({
    meter: telemetry.meter,
    snapshots,
    publish: (process, text) => scheduler.metrics.publish(process, text),
    ping: () => scheduler.ping(),
    onError: report,
  });

  let stopping: Promise<void> | undefined;
  const stop = (drainMs: number): Promise<void> => {
    stopPublishing();
    stopping ??= runtime
      .stop(drainMs)
      .then(() => scheduler.close())
      .then(() => telemetry.close())
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
      slots: concurrency,
    },
    ...(runtime.layers.notice !== null && { notice: runtime.layers.notice }),
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
