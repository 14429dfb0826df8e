import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { loadConfig } from '#infra/config.ts';
import { assertRestored, markRestoring } from '#infra/home.ts';
import { onSmallDisk, smallDiskMissing } from '#infra/testing/small-disk.ts';
import { versionOf } from '#scheduler/functions/functions.ts';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { RestoreMark } from '#scheduler/machines/restore-mark.ts';
import { recount } from '#scheduler/quotas/testing/recount.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { openMasterKeys, seal } from '#scheduler/secrets/master-keys.ts';
import { Store } from '#scheduler/store/store.ts';
import { eventually, submission } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { freePort } from '../../local/platform.ts';
import { toFailure } from '../failure.ts';
import { type BackupRequest, backUp } from './backup.ts';
import { isKept } from './kept-keys.ts';
import { type RestoreRequest, restore } from './restore.ts';
import { assertRoom } from './room.ts';
import { contents } from './testing/contents.ts';

const MASTER_KEY = `${randomBytes(32).toString('base64')}\n`;
const KV_FILE = `kv/gpu-host-1/tiny/${'0a'.repeat(20)}/export-${'1b'.repeat(20)}.kv`;
const INDEX = `indexes/${'2c'.repeat(16)}/notes/records.db`;
const FAR_MS = Date.now() + 3_600_000;

describe('a backup', () => {
  let directory: string;
  let source: TestRedis;
  let target: TestRedis;
  let sourceRedis: Redis;
  let targetRedis: Redis;
  let file: string;
  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-b-'));
    [source, target] = await Promise.all([TestRedis.start(), TestRedis.start()]);
    [sourceRedis, targetRedis] = [source.connect(), target.connect()];
    // By default, each snapshot waits 5 s for further replicas.
    for (const redis of [sourceRedis, targetRedis]) await redis.config('SET', 'repl-diskless-sync-delay', 0);
    await fill(sourceRedis);
    const home = await makeHome('old');
    const keys = openMasterKeys(home, { create: false, environment: {} });
    const sealed = seal(await keys.first(), { tenant: 'acme', name: 'TOKEN' }, 'hidden in the file');
    await sourceRedis.hset('pie:secrets:acme:values', 'TOKEN@1', sealed);
    await fillHome(home);
  });
  after(async () => {
    await Promise.all([source.stop(), target.stop()]);
    await rm(directory, { recursive: true });
  });

  /** Makes a home that has the platform's master key. */
  const makeHome = async (name: string) => {
    const home = path.join(directory, name);
    await mkdir(home);
    await writeFile(path.join(home, 'master.key'), MASTER_KEY);
    return home;
  };
  const environment = (redis: TestRedis, home: string) => ({
    PIE_HOME: path.join(directory, home),
    REDIS_URL: `unix:${redis.socket}`,
    PIE_MACHINE: 'east',
  });
  const quiet = { onProgress: () => undefined, signal: AbortSignal.timeout(300_000) };
  const backUpTo = (at: string, from: NodeJS.ProcessEnv, more: Partial<BackupRequest> = {}) =>
    backUp({ ...quiet, file: at, release: '1', environment: from, ...more });
  const backup = (name: string) => {
    file = path.join(directory, name);
    return backUpTo(file, environment(source, 'old'));
  };
  const restoreInto = (home: string, more: Partial<RestoreRequest> = {}) => {
    const env = environment(target, home);
    return restore({ ...quiet, file, force: false, environment: env, ...more });
  };
  const claimLease = () => {
    const machine = { name: 'west', roles: ['gateway'], host: 'h', pid: 1, version: '1', gpuHosts: [] } as const;
    return MachineLease.claim(new Store(targetRedis), machine, {
      log: silentLog,
      onTaken: () => undefined,
      leaseMs: 60_000,
    });
  };
  const assertRefused = async (work: () => Promise<unknown>, why: RegExp) => {
    const before = await contents(targetRedis);
    await assert.rejects(work, (error) => why.test(`${toFailure(error).message} ${toFailure(error).why}`));
    assert.deepEqual(await contents(targetRedis), before, 'a refusal changes nothing');
  };

  it('has the records of one moment and whole files while both change', async () => {
    let isOver = false;
    const writing = (async () => {
      const index = new DatabaseSync(path.join(directory, 'old', INDEX));
      for (let n = 1; !isOver; n++) {
        await sourceRedis
          .multi()
          .hset('pie:account:a:usage:total', 'n', n)
          .hset('pie:account:b:usage:total', 'n', n)
          .exec();
        index.exec(`BEGIN; UPDATE one SET n = ${n}; UPDATE two SET n = ${n}; COMMIT`);
      }
      index.close();
    })();
    try {
      const { records, files } = await backup('while-it-runs');
      assert.equal(files, 2);
      // `fill` writes 700 records of usage, and a few others.
      assert.ok(records > 700, `${records}`);
    } finally {
      isOver = true;
      await writing;
    }
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual((await readdir(directory)).sort(), ['old', 'while-it-runs'], 'nothing is left beside it');
    const bytes = readFileSync(file);
    for (const secret of ['hidden in the file', MASTER_KEY.trim()]) assert.equal(bytes.includes(secret), false);

    await makeHome('new');
    await restoreInto('new');
    const [a, b] = [
      await targetRedis.hget('pie:account:a:usage:total', 'n'),
      await targetRedis.hget('pie:account:b:usage:total', 'n'),
    ];
    assert.ok(Number(a) > 0 && a === b, `${a} and ${b}`);
    const index = new DatabaseSync(path.join(directory, 'new', INDEX));
    const [one, two] = ['one', 'two'].map((table) => index.prepare(`SELECT n FROM ${table}`).get());
    assert.deepEqual(one, two);
    index.close();
    await targetRedis.flushall();
  });

  it('gives back every kept record and file as it was, and no other', async () => {
    await backup('quiet');
    const expected = await contents(
      sourceRedis,
      (key) => isKept(key.slice('pie:'.length)) && key !== `pie:blob:${UPLOAD}`,
    );
    assert.ok(Object.keys(expected).length > 700);
    const { records, files } = await restoreInto('new', { force: true });
    assert.deepEqual([records, files], [Object.keys(expected).length, 2]);
    // A restore makes these records anew, by counting the bytes in Redis. A backup does not have them.
    const isCounted = (key: string) => /^pie:account(-repairs|:[^:]+:redis)$/.test(key);
    const restoredRecords = await contents(targetRedis, (key) => !isCounted(key));
    // The restored indexes lie in this machine's home, so no runtime of another machine may become the owner of indexes
    // first.
    assert.deepEqual(restoredRecords, { ...expected, 'pie:index-owner': Buffer.from('east') });
    assert.equal(await targetRedis.pexpiretime('pie:store:acme:usage'), FAR_MS);
    const [old, restored] = ['old', 'new'].map((home) => readFileSync(path.join(directory, home, KV_FILE)));
    assert.deepEqual(restored, old);
    assert.equal(statSync(path.join(directory, 'new', KV_FILE)).mode & 0o777, 0o600);
  });

  it('can be written to a folder whose path has spaces, or is too long for the address of a socket', async () => {
    for (const folder of ['zwei Wörter #1', 'long'.repeat(30)]) {
      await mkdir(path.join(directory, folder));
      const { files } = await backup(path.join(folder, 'quiet'));
      assert.equal(files, 2);
      assert.deepEqual(await readdir(path.join(directory, folder)), ['quiet']);
    }
  });

  it('replaces no platform without --force, and none that runs', async () => {
    await assertRefused(() => restoreInto('new'), /There is a platform already/);
    const { machines } = await import('#scheduler/keys.ts').then(({ createKeys }) => createKeys());
    const lease = await claimLease();
    assert.equal(await targetRedis.scard(machines), 1);
    await assertRefused(() => restoreInto('new', { force: true }), /The platform still runs: west/);
    await lease.release();
    await targetRedis.set('pie:invocation:left', 'by the replaced platform');
    await restoreInto('new', { force: true });
    assert.equal(await targetRedis.exists('pie:invocation:left'), 0);
    await targetRedis.flushall();
    await assertRefused(() => restoreInto('new'), /has records of it/);
  });

  it('is refused without its master key, when it was damaged, or when the file is not a backup; nothing is left', async () => {
    const none = path.join(directory, 'none');
    await assertRefused(() => restoreInto('none'), /sealed under the master key [0-9a-f]{8}, which this home lacks/);
    const bytes = readFileSync(file);
    const damaged = path.join(directory, 'damaged');
    for (const at of [0, bytes.length >> 1, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] as number) ^ 1;
      await writeFile(damaged, changed);
      await assertRefused(() => restoreInto('none', { file: damaged }), /cannot be restored/);
    }
    await assertRefused(() => restoreInto('none', { file: path.join(directory, 'nowhere') }), /nowhere cannot be read/);
    await assertRefused(() => restoreInto('none', { file: directory }), /cannot be read\. EISDIR/);
    assert.equal(existsSync(none), false);
  });

  it('that does not fit into Redis leaves the platform that is there', async () => {
    const home = await makeHome('small');
    await targetRedis.set('pie:function:acme:kept', 'by the platform that is there');
    const limit = async (more: number) => {
      const [, startup = '0'] = /used_memory_startup:(\d+)/.exec(await targetRedis.info('memory')) ?? [];
      await targetRedis.config('SET', 'maxmemory', Number(startup) + more);
    };
    await limit(4 * 2 ** 20);
    const why = /Redis has too little memory for the backup\. It needs about 1[01]\.\d MB, and Redis takes 4\.2 MB/;
    await assertRefused(() => restoreInto('small', { force: true }), why);
    assert.equal(existsSync(path.join(home, 'kv')), false);
    await limit(16 * 2 ** 20);
    await restoreInto('small', { force: true });
    await targetRedis.config('SET', 'maxmemory', 0);
    assert.equal(existsSync(path.join(home, 'kv')), true);
    await targetRedis.flushall();
  });

  const diskOptions = { skip: smallDiskMissing() };
  const onDisk = (name: string, work: (at: string) => Promise<void>) => {
    const at = path.join(directory, name);
    return onSmallDisk(at, '2m', () => work(at));
  };

  it('that does not fit onto the disk leaves the platform that is there', diskOptions, () =>
    onDisk('narrow', async (home) => {
      await cp(path.join(directory, 'old', 'master.key'), path.join(home, 'master.key'));
      await mkdir(path.join(home, path.dirname(KV_FILE)), { recursive: true });
      await writeFile(path.join(home, KV_FILE), 'of the platform that is there');
      await assertRefused(() => restoreInto('narrow', { force: true }), /has too little room for the backup/);
      assert.equal(readFileSync(path.join(home, KV_FILE), 'utf8'), 'of the platform that is there');
      const config = loadConfig({ PIE_HOME: home });
      const needs = (recordBytes: number) =>
        assertRoom(config, targetRedis, { recordBytes, fileBytes: 0, memoryBytes: 0 });
      // The disk has 2 MiB. A private Redis needs room for the records twice.
      await needs(900_000);
      await assertRefused(() => needs(1_100_000), /It needs 2\.2 MB/);
    }),
  );

  it(
    'whose copy of an index does not fit onto the disk says that the disk is full, and leaves nothing',
    diskOptions,
    () =>
      onDisk('full', async (disk) => {
        const at = path.join(directory, 'indexed', INDEX);
        await mkdir(path.dirname(at), { recursive: true });
        const index = new DatabaseSync(at);
        index.exec('CREATE TABLE one (bytes); INSERT INTO one VALUES (zeroblob(3000000))');
        index.close();
        const backing = backUpTo(path.join(disk, 'backup'), environment(target, 'indexed'));
        await assert.rejects(backing, { code: 'disk-full' });
        assert.deepEqual(await readdir(disk), []);
      }),
  );

  it('whose restore broke off allows no start of a machine and no backup until another restore has ended', async () => {
    await makeHome('broken');
    const brokenMark = await RestoreMark.begin(new Store(targetRedis), 'a restore that dies');
    await brokenMark.set();
    await brokenMark.release();
    const why = /A restore into this Redis runs or broke off: that of a restore that dies/;
    await assert.rejects(claimLease(), why);
    const half = path.join(directory, 'half');
    await assert.rejects(backUpTo(half, environment(target, 'old')), why);
    assert.equal(existsSync(half), false);
    await restoreInto('broken', { force: true });
    await (await claimLease()).release();
    const runningMark = await RestoreMark.begin(new Store(targetRedis), 'another');
    await assertRefused(() => restoreInto('broken', { force: true }), /Another restore runs: that of another/);
    await runningMark.release();
    const { restoreLease } = new Store(targetRedis).keys;
    // After the first record, another restore replaces this one's lease and all records.
    const onProgress = (text: string) => {
      if (!text.startsWith('1 of')) return;
      const other = { [restoreLease]: 'another that has begun since', 'pie:function:acme:others': 'by it' };
      void targetRedis.multi().flushall().mset(other).exec();
    };
    await assert.rejects(restoreInto('broken', { force: true, onProgress }), /another one may have begun/);
    assert.deepEqual((await targetRedis.keys('*')).sort(), ['pie:function:acme:others', restoreLease].sort());
    assert.equal(await targetRedis.get(restoreLease), 'another that has begun since');
    assert.equal(await targetRedis.get('pie:function:acme:others'), 'by it');
    await targetRedis.flushall();
  });

  it('is written to a new file only, and leaves no file when it breaks off', async () => {
    await assert.rejects(backup('quiet'), /already exists/);
    const stopped = AbortSignal.abort(new Error('stopped'));
    const env = environment(source, 'old');
    const before = await readdir(directory);
    const at = path.join(directory, 'broken-off');
    await assert.rejects(backUpTo(at, env, { signal: stopped }), /stopped/);
    for (const REDIS_URL of ['unix:/nowhere.sock', 'rediss://127.0.0.1:1', 'rediss://[::1]:1']) {
      await assert.rejects(backUpTo(at, { ...env, REDIS_URL }), (error) => {
        const { message, why } = toFailure(error);
        return /cannot be reached/.test(message) && /ENOENT|ECONNREFUSED|EADDRNOTAVAIL/.test(`${why}`);
      });
    }
    assert.deepEqual(await readdir(directory), before);
  });

  it('can be restored into a home with a private Redis, and can be made of such a home while its platform is stopped', async () => {
    const privateEnvironment = (home: string) => ({ PIE_HOME: path.join(directory, home), PIE_MACHINE: 'east' });
    for (const home of ['private', 'again']) await makeHome(home);
    const restoreAlone = (home: string, from: string) =>
      restoreInto(home, { file: from, environment: privateEnvironment(home) });
    const first = await restoreAlone('private', file);
    const again = path.join(directory, 'of-a-stopped-platform');
    const { records } = await backUpTo(again, privateEnvironment('private'));
    assert.equal(records, first.records);
    await assert.rejects(restoreAlone('private', again), /There is a platform already/);
    const config = loadConfig(privateEnvironment('again'));
    markRestoring(config);
    assert.throws(() => assertRestored(config), /A restore into .*again broke off/);
    const second = await restoreAlone('again', again);
    assertRestored(config);
    assert.deepEqual([second.records, second.files, second.masterKeys], [first.records, 2, first.masterKeys]);
    await assert.rejects(
      backUpTo(path.join(directory, 'nothing'), privateEnvironment('nowhere')),
      /There is no platform in .*nowhere/,
    );
    assert.equal(existsSync(path.join(directory, 'nowhere')), false);
  });

  it('can be stopped while a Redis that it started is not ready yet, and then leaves nothing', async () => {
    const folder = path.join(directory, 'slow');
    const started = path.join(folder, 'started');
    await mkdir(path.join(folder, 'home', 'redis'), { recursive: true });
    // A stand-in for a Redis that takes long to load its file.
    const script = `#!/bin/sh\n[ "$1" = --version ] && exit 0\n: > '${started}'\nexec sleep 60\n`;
    await writeFile(path.join(folder, 'redis-server'), script, { mode: 0o755 });
    const privateEnvironment = { PIE_HOME: path.join(folder, 'home'), PIE_MACHINE: 'east' };
    const at = path.join(directory, 'stopped');
    const before = await readdir(directory);
    const { PATH } = process.env;
    process.env.PATH = `${folder}:${PATH}`;
    try {
      // The first backup starts a Redis for the snapshot; the second starts the Redis of the home.
      for (const env of [environment(source, 'old'), privateEnvironment]) {
        const stopping = new AbortController();
        const backing = backUpTo(at, env, { signal: stopping.signal });
        await Promise.race([backing, eventually(() => existsSync(started), 'a Redis starts')]);
        stopping.abort(new Error('enough'));
        await assert.rejects(backing, /enough/);
        assert.deepEqual(await readdir(directory), before);
        await rm(started);
      }
    } finally {
      process.env.PATH = PATH;
    }
  });

  it('counts the bytes in Redis of the records that it restores, without those of ended invocations', async () => {
    const tenant = 'counted';
    const open = (redis: TestRedis) => openScheduler({ log: silentLog, connect: redis.connect });
    const original = open(source);
    await original.tenants.ensure(tenant);
    await original.quotas.set(
      tenant,
      { quota: 'redis-bytes', function: null, limit: 1e9, until: null },
      { author: 'key', reason: '' },
    );
    await original.keyValues.write(tenant, 'k', new Uint8Array(100));
    const componentHash = await original.blobs.put(tenant, new Uint8Array(400));
    const manifest = { name: 'story' };
    const version = versionOf(manifest, componentHash);
    await original.functions.put({
      tenant,
      name: 'story',
      version,
      manifest,
      componentHash,
      componentBytes: 400,
      createdAt: 0,
    });
    const record = submission({ tenant, version });
    await original.invocations.create(record);
    await original.cancel(record.id, 'enough');
    await original.close();
    await backup('counted');
    await cp(path.join(directory, 'old', 'master.key'), path.join(directory, 'counting', 'master.key'));
    await restoreInto('counting', { force: true });
    const restored = open(target);
    const { quotas, store } = restored;
    const used = (await quotas.status(tenant)).find(({ quota }) => quota === 'redis-bytes')?.used;
    assert.equal(used, await recount(store, tenant, [record.id], new Map(), [componentHash]));
    assert.ok(Number(used) > 500);
    await restored.close();
  });

  it('needs a Redis user that may take a snapshot', async () => {
    await sourceRedis.call('ACL', 'SETUSER', 'weak', 'on', '>pw', '~*', '&*', '+@all', '-@dangerous');
    await sourceRedis.config('SET', 'requirepass', 'strong');
    const env = (user: string) => ({ ...environment(source, 'old'), REDIS_URL: `redis://${user}@127.0.0.1:${port}` });
    const port = await freePort();
    await sourceRedis.config('SET', 'port', port);
    const at = path.join(directory, 'by-a-user');
    await assert.rejects(
      backUpTo(at, env('weak:pw')),
      (error) =>
        toFailure(error).message === 'Redis refused to send a snapshot.' && /NOPERM/.test(toFailure(error).why ?? ''),
    );
    assert.equal((await backUpTo(at, env('default:strong'))).files, 2);
  });
});

const UPLOAD = 'b'.repeat(64);
const COMPONENT = Buffer.alloc(3 * 2 ** 20, 'wasm');

/** Writes records of every type, large and small, with any bytes; and records that a backup leaves out. */
async function fill(redis: Redis): Promise<void> {
  const { createHash } = await import('node:crypto');
  const hash = createHash('sha256').update(COMPONENT).digest('hex');
  const batch = redis.pipeline();
  batch.set(`pie:blob:${hash}`, COMPONENT).sadd(`pie:blob:${hash}:users`, 'acme/story@1', 'acme/story@2');
  batch
    .set(`pie:blob:${UPLOAD}`, 'an upload', 'PX', 60_000)
    .set('pie:blob:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', '');
  for (let i = 0; i < 700; i++) batch.hset(`pie:account:t${i}:usage:day:20000`, 'tokens', i, 'requests', 2 * i);
  for (let i = 0; i < 2000; i++) batch.hset('pie:store:acme:values', `key ${i}`, randomBytes(i));
  for (let i = 0; i < 500; i++)
    batch.zadd('pie:store:acme:expiries', i === 0 ? '-inf' : String(Math.PI * 10 ** (i % 30)), `key ${i}`);
  batch.hset('pie:store:acme:usage', 'bytes', 7).pexpireat('pie:store:acme:usage', FAR_MS);
  for (let i = 0; i < 100; i++) batch.rpush('pie:function:acme:story:history:live', randomBytes(30));
  for (let i = 1; i < 100; i++) batch.xadd('pie:guarded-audit:acme', `${i}-0`, 'act', 'x', 'by', randomBytes(9));
  batch.sadd('pie:tenants', 'acme', 'default').hset('pie:key:'.concat('c'.repeat(64)), 'tenant', 'acme');
  batch.hset('pie:line:acme:any: name\n:state', 'bytes', 1).hset('pie:account:acme:open', '*', 3);
  batch.hset('pie:invocation:1', 'state', 'running').set('pie:machine:east:lease', 'x').set('other:tenant:acme', 'x');
  for (const [error] of (await batch.exec()) ?? []) assert.equal(error, null);
}

async function fillHome(home: string): Promise<void> {
  for (const at of [KV_FILE, INDEX]) await mkdir(path.dirname(path.join(home, at)), { recursive: true });
  await writeFile(path.join(home, KV_FILE), randomBytes(2_500_000));
  await writeFile(path.join(home, 'kv/gpu-host-1/tiny/swap-1'), 'left out');
  const index = new DatabaseSync(path.join(home, INDEX));
  index.exec(
    'PRAGMA journal_mode = WAL; CREATE TABLE one (n); CREATE TABLE two (n); INSERT INTO one VALUES (0); INSERT INTO two VALUES (0)',
  );
  index.close();
}
