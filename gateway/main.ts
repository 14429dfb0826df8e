import { readFileSync } from 'node:fs';
import { type Config, loadConfig, settingsForOthers } from '#infra/config.ts';
import { announceReady, exitWithParent } from '#infra/lifeline.ts';
import { openLinkSecurity } from '#infra/links/security.ts';
import { openLog } from '#infra/log.ts';
import { pendingFunctions } from '#infra/pending-functions.ts';
import { connectRedis } from '#infra/redis.ts';
import { publishMetrics } from '#infra/telemetry/prometheus.ts';
import { openTelemetry } from '#infra/telemetry/telemetry.ts';
import { Reach } from '#scheduler/addresses/reach.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { agreeOnMasterKey, keyOfOthers, openMasterKeys, sealedUnder } from '#scheduler/secrets/master-keys.ts';
import { Bodies } from './app/http/bodies.ts';
import { OpenStreams } from './app/http/open-streams.ts';
import { NodeControlPlane } from './node/control-plane.ts';
import { ensureCredentials } from './node/credentials.ts';
import { Connections, connectionsWithin, streamsWithin } from './node/http/connections.ts';
import { defaultLimits } from './node/http/default-limits.ts';
import { observeRequests } from './node/http/request-observer.ts';
import { serve } from './node/http/server.ts';
import type { JoinSource } from './node/joining.ts';
import { countWebhooks, platformMetrics, watchPlatform, watchRequests } from './node/platform-metrics.ts';
import { scheduledRuns } from './node/scheduled-runs.ts';
import { sessionSecret } from './node/session-secret.ts';
import { webhookPayload } from './node/webhook-payload.ts';

/** Identifies this process among the gateways of all machines; the supervisor sets it. */
const NAME = process.env.PIE_GATEWAY_ID ?? 'gateway';

/** Replaced once the configuration is read. */
let log = openLog(NAME);

/** The gateway's process: it serves HTTP to clients and keeps its state in Redis. */
async function main(): Promise<void> {
  const config = loadConfig();
  log = openLog(NAME, config.log);
  let closeOnParentExit = async (): Promise<void> => undefined;
  exitWithParent(log, () => closeOnParentExit());
  // The callback `sealedUnder` runs only after `scheduler` and `machine`, which are declared below, have their values.
  const masterKeys = openMasterKeys(config.home, {
    create: true,
    sealedUnder: async () =>
      (await sealedUnder(scheduler.store, scheduler.functions)) ?? (await keyOfOthers(scheduler, machine)),
  });
  const { retention } = config;
  const machine = config.machine.name;
  const scheduler = openScheduler({
    connect: () => connectRedis(config),
    masterKeys,
    retention,
    machine,
    log,
    links: openLinkSecurity(config, log),
  });
  await agreeOnMasterKey(scheduler, masterKeys, machine);
  const reach = new Reach({ ...config.webhooks, option: '[webhooks] private_hosts' });
  const control = new NodeControlPlane(scheduler, {
    limits: config.runtime.limits,
    modelAliases: modelAliases(config),
    pendingFunctions: () => pendingFunctions(config),
    reach,
    joining: { redis: sharedRedis(config), masterKeys, settings: settingsForOthers },
    log,
  });
  await scheduler.quotas.setDefaults({
    ...(await defaultLimits(scheduler.store, config.home)),
    ...config.quotas,
    'waiting-invocations': config.admission.maxWaiting,
  });
  const telemetry = await openTelemetry({ settings: config.telemetry, room: 'gateway', process: NAME, log });
  const { meter } = telemetry;
  const collect = () => telemetry.collect();
  watchPlatform(meter, scheduler);
  const bodies = new Bodies(config.gateway);
  const connections = new Connections(connectionsWithin(config.gateway.connections));
  if (connections.max < config.gateway.connections)
    log.info(
      { connections: connections.max },
      'the limit on open files (`ulimit -n`) allows fewer connections than `[gateway] connections` in pie.toml',
    );
  const limits = { ...config.gateway, streams: streamsWithin(config.gateway.streams, connections.max) };
  const streams = new OpenStreams(limits, 'streams');
  watchRequests(meter, { bodies, streams, connections });
  const server = await serve(control, {
    host: config.host,
    port: config.port,
    version: platformVersion(),
    log,
    limits,
    bodies,
    streams,
    connections,
    corsOrigins: config.http.corsOrigins,
    sessionSecret: await sessionSecret(masterKeys),
    observer: observeRequests(telemetry),
    metrics: platformMetrics({ scheduler, process: NAME, collect, public: config.telemetry.metricsPublic }),
  });
  const stopPublishing = publishMetrics({
    meter,
    snapshots: async () => [{ process: NAME, families: await collect() }],
    publish: (process, text) => scheduler.metrics.publish(process, text),
    ping: () => scheduler.ping(),
    log,
  });
  await ensureCredentials(config.home, server.url, scheduler);
  scheduler.reaper.start();
  const stopUsers = await scheduler.redisUsers.follow(log);
  void resealSecrets(scheduler);
  const webhooks = scheduler.createWebhooks({
    reach,
    payload: webhookPayload(scheduler),
    version: platformVersion(),
    onAttempt: countWebhooks(meter),
  });
  webhooks.start();
  const schedules = scheduler.createScheduleWorker({ run: scheduledRuns(control, scheduler.tenants) });
  schedules.start();

  const drain = async () => {
    stopPublishing();
    stopUsers();
    await server.close(config.drainMs);
    await webhooks.stop();
    await schedules.stop();
    await telemetry.close();
    await scheduler.close();
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => drain().catch(fail));
  // Without a supervisor there is no time to drain; the gateway tells clients to come back.
  closeOnParentExit = () => server.close(0);
  announceReady({ address: server.url });
}

/** Seals all secrets anew after a rotation of the master key; otherwise changes nothing. An error with one tenant does not stop the others. */
async function resealSecrets({ tenants, secrets, environments, webhookSecrets }: Scheduler): Promise<void> {
  const warn = (error: unknown, tenant?: string) =>
    log.warn({ error, tenant }, 'secrets could not be sealed under the new master key');
  try {
    for (const { name } of await tenants.list())
      for (const sealed of [secrets, environments, webhookSecrets])
        await sealed.reseal(name).catch((error: unknown) => warn(error, name));
  } catch (error) {
    warn(error);
  }
}

function fail(error: unknown): never {
  log.error({ error }, 'the gateway ends');
  process.exit(1);
}

function modelAliases({ models }: Config): Map<string, string> {
  return new Map(models.flatMap(({ name, aliases = [] }) => aliases.map((alias): [string, string] => [alias, name])));
}

/** Address and certificates of Redis for machines that join; null when Redis has no network address. */
function sharedRedis({ redis }: Config): JoinSource['redis'] {
  if (redis.kind === 'private' || new URL(redis.url).protocol === 'unix:') return null;
  return { url: redis.url, ...(redis.ca !== undefined && { ca: readFileSync(redis.ca, 'utf8') }) };
}

function platformVersion(): string {
  const manifest: { version: string } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  return manifest.version;
}

await main().catch(fail);
