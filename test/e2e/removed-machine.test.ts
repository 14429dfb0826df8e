import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { type Config, loadConfig } from '#infra/config.ts';
import { readCertificate, readPeers } from '#infra/links/security.ts';
import { claimMachine } from '#infra/machine-lease.ts';
import { parseJoinToken } from '#scheduler/machines/join-tokens.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { freePort, until } from '#test/harness/platform.ts';

const masterKeys = openMasterKeys('', {
  create: false,
  environment: { PIE_MASTER_KEY: randomBytes(32).toString('base64') },
});
const ROLES = ['gpu-host'] as const;
/** Permission in a join token. */
const PERMISSION = { roles: ROLES, by: 'a key', tenant: 'default' };
let directory: string;
let redis: TestRedis;
let port: number;
let scheduler: Scheduler;
before(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), 'pie-rm-'));
  redis = await TestRedis.start();
  scheduler = openScheduler({ log: silentLog, connect: redis.connect });
  // A machine reaches Redis by a URL with a user name, so Redis must listen on a TCP port. `TestRedis` listens only on a unix socket by default.
  port = await freePort();
  await scheduler.store.redis.config('SET', 'port', port);
});
after(async () => {
  await scheduler.close();
  await redis.stop();
  await rm(directory, { recursive: true });
});

/** Gives a machine a Redis user of its own, as a join does, and returns the machine's settings. */
async function joined(name: string): Promise<Config> {
  const { id } =
    parseJoinToken(await scheduler.joinTokens.create(masterKeys, 60_000, PERMISSION)) ?? assert.fail('no token');
  const user = await scheduler.redisUsers.grant(id, name, `of ${name}`, ROLES);
  if (typeof user === 'string') return assert.fail(user);
  const home = path.join(directory, name);
  const config = loadConfig({
    PIE_HOME: home,
    PIE_MACHINE: name,
    PIE_ROLES: 'gpu-host',
    PIE_CONFIG: '',
    REDIS_URL: `redis://${user.user}:${user.password}@127.0.0.1:${port}`,
  });
  await mkdir(config.runDirectory, { recursive: true });
  return config;
}

test('the supervisor of a removed machine stops, although its Redis user is deleted; the others refuse its certificate', async () => {
  const [east, west] = [await joined('east'), await joined('west')];
  const removalOfWest = Promise.withResolvers<Error>();
  const { signal } = new AbortController();
  // `claimMachine` calls `onTaken` after a removal, too.
  const failEast = (error: Error) => assert.fail(`east must stay, but was told: ${error.message}`);
  const machineEast = await claimMachine(east, { log: silentLog, onTaken: failEast, signal });
  const machineWest = await claimMachine(west, { log: silentLog, onTaken: removalOfWest.resolve, signal });
  const { fingerprint } = readCertificate(west.home) ?? assert.fail('no certificate');
  await until('east accepts the certificate of west', () => readPeers(east)[fingerprint] === 'west');
  assert.equal(await scheduler.machines.remove('west'), true);
  // Deletes the Redis user of `west`.
  await scheduler.redisUsers.reconcile();
  const { message } = await removalOfWest.promise;
  assert.match(message, /^An operator has removed the machine "west"\. Delete .*machine\.pem/);
  await until('east refuses the certificate of west', () => !(fingerprint in readPeers(east)));
  await machineWest?.release();
  await machineEast?.release();
});
