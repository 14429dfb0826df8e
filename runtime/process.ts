import { setTimeout as sleep } from 'node:timers/promises';
import { hostFamilies } from '#gpu-host/protocol/host-metrics.ts';
import { loadConfig } from '#infra/config.ts';
import { announceReady, exitWithParent } from '#infra/lifeline.ts';
import { openLinkSecurity } from '#infra/links/security.ts';
import { openLog } from '#infra/log.ts';
import { connectRedis } from '#infra/redis.ts';
import { gpuHostWaitMs, liveSocket, runtimeName } from '#infra/runtimes.ts';
import type { StorageSettings } from '#infra/storage-settings.ts';
import { type ProcessFamilies, publishMetrics } from '#infra/telemetry/prometheus.ts';
import { openTelemetry } from '#infra/telemetry/telemetry.ts';
import { vitalFamilies } from '#infra/telemetry/vitals.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { assertMasterKey, openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { connectionOptions } from '#scheduler/store/connection.ts';
import { GpuHostRegistry } from './gpu-host-registry.ts';
import { DurableCopies } from './host/memory/durable-copies.ts';
import { exitWithoutWaitingFor, IoTurns, SharedDirectory } from './host/memory/shared-directory.ts';
import { startRuntime } from './runtime.ts';
import { logUnexpected } from './unexpected.ts';

/** Interval of pings at the start, until Redis answers. */
const PING_EVERY_MS = 200;

/** The runtime process: takes invocations from the queue and runs them, until it gets a stop signal or its supervisor is gone. */
export async function runProcess(): Promise<void> {
  const config = loadConfig();
  const name = runtimeName();
  const log = openLog(name, config.log);
  logUnexpected(log);
  // Follow the supervisor from here on, because the wait for Redis below may last forever.
  let closing = async (): Promise<void> => undefined;
  exitWithParent(log, () => closing());
  const security = openLinkSecurity(config, log);
  const masterKeys = openMasterKeys(config.home, { create: false });
  const scheduler = openScheduler({
    connect: () => connectRedis(config, connectionOptions()),
    masterKeys,
    retention: config.retention,
    machine: config.machine.name,
    log,
  });
  while (!(await answers(scheduler.ping(1000)))) await sleep(PING_EVERY_MS);
  const { machine } = config;
  // On a machine with a gateway, the gateway checks the master key, and may still be creating it.
  if (!machine.roles.includes('gateway')) await assertMasterKey(scheduler, masterKeys, machine.name);
  const { concurrency, sandboxes } = config.runtime;
  const durable = await openDurable(config.storage, scheduler);
  const telemetry = await openTelemetry({ settings: config.telemetry, room: 'runtime', process: name, log });
  const registry = new GpuHostRegistry(scheduler.machines, config, security);
  const runtime = await startRuntime({
    name,
    scheduler,
    machine: machine.name,
    sharesWork: config.redis.kind === 'external',
    gpuHosts: await registry.hosts(),
    followGpuHosts: (changed) => registry.follow(changed, log),
    gpuHostDeadlineMs: gpuHostWaitMs(config),
    placement: config.placement,
    artifactsDirectory: config.artifactsDirectory,
    liveSocket: liveSocket(config, name),
    indexSocket: config.index.socket,
    durable,
    liveAt: config.runtime.address === undefined ? undefined : { address: config.runtime.address, security },
    concurrency,
    isolation: config.runtime.isolation,
    sandboxes,
    builds: config.runtime.builds,
    memoryMb: config.runtime.memoryMb,
    limits: config.runtime.limits,
    overcommit: config.admission.overcommit,
    reserve: config.admission.reserve,
    privateHosts: config.http.privateHosts,
    imageHosts: config.http.imageHosts,
    instruments: telemetry,
    log,
  });
  // Publish the GPU hosts' metrics here: they talk only to runtimes.
  const snapshots = async (): Promise<ProcessFamilies[]> => {
    const hosts = (await runtime.gpuHostStats()).map(({ name: host, stats }) => {
      const vitals = stats.vitals ? vitalFamilies(stats.vitals) : [];
      return { process: host, families: [...hostFamilies(stats, host), ...vitals] };
    });
    return [{ process: name, families: await telemetry.collect() }, ...hosts];
  };
  const stopPublishing = publishMetrics({
    meter: telemetry.meter,
    snapshots,
    publish: (process, text) => scheduler.metrics.publish(process, text),
    ping: () => scheduler.ping(),
    log,
  });

  let stopping: Promise<void> | undefined;
  const stop = (drainMs: number): Promise<void> => {
    stopPublishing();
    stopping ??= runtime
      .stop(drainMs)
      .then(() => scheduler.close())
      .then(() => telemetry.close())
      .catch((error: unknown) => log.error({ error }, 'the stop failed'))
      .finally(() => process.exit(0));
    return stopping;
  };
  closing = () => stop(0);
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(config.drainMs));
  announceReady({
    detail: {
      id: runtime.id,
      models: runtime.models.list().map(({ name }) => name),
      slots: concurrency,
    },
    ...(runtime.layers.sandbox.notice !== null && { notice: runtime.layers.sandbox.notice }),
  });
}

/** Copies of names in the directory that machines share; undefined without such a directory. @throws SharedDirectoryError @throws StoreError */
async function openDurable(
  { sharedDirectory, tenantNames, tenantMb }: StorageSettings,
  { durableNames: records, nameOwners: owners }: Scheduler,
): Promise<DurableCopies | undefined> {
  if (sharedDirectory === undefined) return undefined;
  const turns = new IoTurns();
  exitWithoutWaitingFor(turns);
  const directory = await SharedDirectory.open(sharedDirectory, records, turns);
  return new DurableCopies({ records, owners, directory, bounds: { copies: tenantNames, bytes: tenantMb * 2 ** 20 } });
}

async function answers(ping: Promise<void>): Promise<boolean> {
  try {
    await ping;
    return true;
  } catch {
    return false;
  }
}
