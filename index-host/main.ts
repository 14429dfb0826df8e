import { mkdirSync } from 'node:fs';
import { loadConfig } from '#infra/config.ts';
import { announceReady, exitWithParent } from '#infra/lifeline.ts';
import { logEnding, openLog } from '#infra/log.ts';
import { INDEX_HOST } from '#infra/storage-settings.ts';
import { openTelemetry } from '#infra/telemetry/telemetry.ts';
import { IndexHost } from './server.ts';

const MIB = 2 ** 20;
/** The log of this process; `main` replaces it once the configuration is read. */
let log = openLog(INDEX_HOST);

/** Time to save the open indexes at the end. An index that is not saved in time adds its newest vectors to its graph again later. */
const STOP_DEADLINE_MS = 2500;

/** The index host process: serves the tenants' indexes until it is told to stop or its supervisor is gone. */
async function main(): Promise<void> {
  const { index, log: logSettings, telemetry: settings } = loadConfig();
  log = openLog(INDEX_HOST, logSettings);
  let stop = async (): Promise<void> => undefined;
  exitWithParent(log, () => stop());
  mkdirSync(index.directory, { recursive: true, mode: 0o700 });
  const host = new IndexHost({
    directory: index.directory,
    limits: {
      indexes: index.tenantIndexes,
      room: { entries: index.tenantEntries, bytes: index.tenantMb * MIB },
      openBytes: index.memoryMb * MIB,
    },
    log,
  });
  const telemetry = await openTelemetry({
    settings,
    log,
    room: 'index-host',
    process: INDEX_HOST,
  });
  await host.listen(index.socket);
  let stopping: Promise<void> | undefined;
  stop = (): Promise<void> => {
    setTimeout(() => process.exit(0), STOP_DEADLINE_MS).unref();
    stopping ??= host
      .close()
      .then(() => telemetry.close())
      .catch((error: unknown) => log.error({ error }, 'the stop failed'))
      .finally(() => process.exit(0));
    return stopping;
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop());
  announceReady({ address: index.socket });
}

main().catch((error: unknown) => {
  logEnding(log, error, 'the index host ends');
  process.exit(1);
});
