import { readFileSync } from 'node:fs';
import { loadConfig } from '#infra/config.ts';
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
const config = loadConfig();
const scheduler = openScheduler({ connect: () => connectRedis(config) });
const keys = new Keys(scheduler.store);
const control = new NodeControlPlane(scheduler, keys, { limits: config.runtime.limits });
const server = await serve(control, { host: config.host, port: config.port, version: platformVersion(), log });
await ensureCredentials(config.home, server.url, keys);
scheduler.reaper.start();

let stopping: Promise<void> | undefined;
function stop(): Promise<void> {
  stopping ??= server.close(config.drainMs).then(() => scheduler.close());
  return stopping;
}
for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.on(signal, () => {
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        log({ level: 'error', message: 'the gateway did not stop cleanly', error });
        process.exit(1);
      },
    );
  });
}
exitWithParent();
announceReady({ address: server.url });

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

function platformVersion(): string {
  const manifest: { version: string } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  return manifest.version;
}
