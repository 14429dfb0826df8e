import { readFileSync } from 'node:fs';
import { type Config, loadConfig } from '#infra/config.ts';
import { exitWithParent } from '#infra/lifeline.ts';
import { announceReady } from '#infra/ready.ts';
import { connectRedis } from '#infra/redis.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import type { LogRecord } from './app/context.ts';
import { NodeControlPlane } from './node/control-plane.ts';
import { ensureCredentials } from './node/credentials.ts';
import { Keys } from './node/keys.ts';
import { serve } from './node/server.ts';

/** The gateway's process: HTTP for clients on one side, Redis on the other. */
async function main(): Promise<void> {
  const config = loadConfig();
  const onError = (error: unknown) => log({ level: 'warn', message: 'in the background', error });
  const scheduler = openScheduler({ connect: () => connectRedis(config), onError });
  const keys = new Keys(scheduler.store);
  const control = new NodeControlPlane(scheduler, keys, {
    limits: config.runtime.limits,
    maxWaiting: config.admission.maxWaiting,
    modelAliases: modelAliases(config),
  });
  const server = await serve(control, { host: config.host, port: config.port, version: platformVersion(), log });
  await ensureCredentials(config.home, server.url, keys);
  scheduler.reaper.start();

  const drain = async () => {
    await server.close(config.drainMs);
    await scheduler.close();
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => drain().catch(fail));
  // Without its supervisor there is no time to wait for anybody; clients are told to come back.
  exitWithParent(() => server.close(0));
  announceReady({ address: server.url });
}

function fail(error: unknown): never {
  log({ level: 'error', message: 'the gateway failed', error });
  process.exit(1);
}

/** One JSON line on standard error. */
function log({ level, message, requestId, error }: LogRecord): void {
  const line = {
    time: new Date().toISOString(),
    level,
    message,
    ...(requestId === undefined ? {} : { requestId }),
    ...(error === undefined ? {} : { error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    ...(error instanceof Error && error.cause !== undefined ? { cause: String(error.cause) } : {}),
  };
  process.stderr.write(`${JSON.stringify(line)}\n`);
}

function modelAliases({ gpuHosts }: Config): Map<string, string> {
  const models = gpuHosts.flatMap((host) => host.models);
  return new Map(models.flatMap(({ name, aliases = [] }) => aliases.map((alias): [string, string] => [alias, name])));
}

function platformVersion(): string {
  const manifest: { version: string } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  return manifest.version;
}

await main().catch(fail);
