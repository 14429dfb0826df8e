import assert from 'node:assert/strict';
import { createSecretKey, randomBytes, randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import {
  agreeOnMasterKey,
  assertMasterKey,
  keyOfOthers,
  type MasterKey,
  type MasterKeys,
} from '../secrets/master-keys.ts';
import type { StoreError } from '../store/errors.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { CertificateTaken, MachineLease, MachineNameTaken, PlatformRestoring, RolesRefused } from './lease.ts';
import { RestoreLost, RestoreMark, RestoreRuns } from './restore-mark.ts';
import type { MachineDescription } from './types.ts';

const description = (name: string, more: Partial<MachineDescription> = {}): MachineDescription => ({
  name,
  roles: ['gateway', 'runtime', 'gpu-host'],
  host: `${name}.example`,
  pid: 7,
  version: '1.0.0',
  gpuHosts: [],
  ...more,
});
const neverTaken = { log: silentLog, onTaken: () => assert.fail('the name was taken') };
/** Ends a test that waits in vain for a refusal, because a script accepts what it should refuse. */
const TIMEOUT_MS = 60_000;

describe('the registry of machines', { timeout: TIMEOUT_MS }, () => {
  let redis: TestRedis;
  let scheduler: ReturnType<typeof openTestScheduler>;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  // Leases and marks that a failed test left behind would keep this process alive.
  const leases: MachineLease[] = [];
  const marks: RestoreMark[] = [];
  const testsOver = new AbortController();
  after(async () => {
    testsOver.abort();
    for (const lease of leases) lease.abandon();
    await Promise.all(marks.map((mark) => mark.release()));
    await scheduler.close();
    await redis.stop();
  });
  const claim = async (
    machine: MachineDescription,
    options: Partial<Parameters<typeof MachineLease.claim>[2]> = {},
  ) => {
    const { signal } = testsOver;
    const lease = await MachineLease.claim(scheduler.store, machine, {
      ...neverTaken,
      leaseMs: 60_000,
      signal,
      ...options,
    });
    leases.push(lease);
    return lease;
  };
  const beginRestore = async (holder: string, renewMs?: number) => {
    const mark = await RestoreMark.begin(scheduler.store, holder, renewMs);
    marks.push(mark);
    return mark;
  };
  const names = async () => (await scheduler.machines.list()).map(({ name, alive }) => `${name} ${alive}`);
  /** Waits until a machine renews its lease: shortens the lease, which must be longer than `shortenedMs`, and waits until it is longer again. */
  const renews = async (name: string) => {
    const { keys, redis: connection } = scheduler.store;
    const shortenedMs = 4000;
    await connection.pexpire(keys.machineLease(name), shortenedMs);
    await eventually(
      async () => (await connection.pttl(keys.machineLease(name))) > shortenedMs,
      `the machine ${name} renews its lease`,
    );
  };

  it('refuses a name while its supervisor renews the lease, and names the holder', async () => {
    const first = await claim(description('east'), { leaseMs: 4000 });
    await assert.rejects(
      claim(description('east', { host: 'other' })),
      (error) =>
        error instanceof MachineNameTaken &&
        error.message === 'The machine name "east" is taken by the supervisor of east.example (process 7).',
    );
    const west = await claim(description('west-10'));
    const west2 = await claim(description('west-2'));
    assert.deepEqual(await names(), ['east true', 'west-2 true', 'west-10 true']);
    for (const lease of [first, west, west2]) await lease.release();
    assert.deepEqual(await names(), []);
  });

  it('gives the name of a dead supervisor to the next one once its lease has run out', async () => {
    const dead = await claim(description('east', { pid: 1 }));
    dead.abandon();
    const next = claim(description('east', { pid: 2 }));
    await scheduler.store.redis.del(scheduler.store.keys.machineLease('east'));
    const lease = await next;
    assert.deepEqual(
      (await scheduler.machines.list()).map(({ pid, alive }) => [pid, alive]),
      [[2, true]],
    );
    await dead.release();
    assert.deepEqual(await names(), ['east true'], 'the release of an earlier supervisor removes nothing');
    await (await claim(description('east', { pid: 3 }), { force: true })).release();
    lease.abandon();
  });

  it('notifies a supervisor when another one has taken its name by force', async () => {
    const notified = Promise.withResolvers<Error>();
    const slow = await claim(description('east'), { leaseMs: 100, onTaken: notified.resolve });
    const other = await claim(description('east', { host: 'other' }), { force: true });
    assert.match((await notified.promise).message, /taken by the supervisor of other/);
    await slow.release();
    assert.deepEqual(await names(), ['east true']);
    await other.release();
  });

  it('notifies a supervisor that its name was taken, even when the description of the new holder cannot be read', async () => {
    const { keys, redis: connection } = scheduler.store;
    const notified = Promise.withResolvers<Error>();
    const slow = await claim(description('east'), { leaseMs: 1000, onTaken: notified.resolve });
    await connection.multi().set(keys.machineLease('east'), 'another').set(keys.machine('east'), 'no JSON').exec();
    assert.match(
      (await notified.promise).message,
      /^The machine name "east" is taken by the supervisor of another machine\.$/,
    );
    await connection.del(keys.machineLease('east'));
    await (await claim(description('east'))).release();
    await slow.release();
  });

  it('reports a refused renewal of a lease once, and renews the lease when Redis accepts renewals again', async () => {
    const { keys, redis: connection } = scheduler.store;
    const log = new CollectedLog();
    const errors = log.errors as StoreError[];
    const lease = await claim(description('east'), { leaseMs: 500, log });
    const tries = async () =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(await connection.info('commandstats'))?.[1] ?? 0);
    for (const reports of [1, 2]) {
      // The script of a renewal reads this key as a set, so it fails.
      await connection.set(keys.removedMachines, 'no set');
      await eventually(() => errors.length === reports, 'the failure is reported');
      assert.equal(errors.at(-1)?.code, 'store-corrupt');
      assert.match(errors.at(-1)?.message ?? '', /WRONGTYPE/);
      const before = await tries();
      await eventually(async () => (await tries()) > before + 1, 'two more renewals are tried');
      assert.equal(errors.length, reports, 'the same failure is not reported again');
      await connection.del(keys.removedMachines, keys.machineLease('east'));
      await eventually(async () => (await connection.exists(keys.machineLease('east'))) === 1, 'a renewal succeeds');
    }
    await lease.release();
  });

  it('removes a machine for good: no supervisor can register with its certificate, under any name', async () => {
    const notified = Promise.withResolvers<Error>();
    await claim(description('east', { certificate: 'AA' }), { leaseMs: 100, onTaken: notified.resolve });
    assert.equal(await scheduler.machines.remove('west'), false);
    assert.equal(await scheduler.machines.remove('east'), true);
    assert.match((await notified.promise).message, /An operator has removed the machine "east"\./);
    assert.deepEqual(await names(), []);
    await assert.rejects(claim(description('west', { certificate: 'AA' })), /removed the machine "west"/);
    const again = await claim(description('east', { certificate: 'BB' }));
    assert.deepEqual(await names(), ['east true']);
    await again.release();
  });

  it('gives a certificate to one machine: a copied home cannot claim another name with it', async () => {
    const certificate = 'CC';
    const east = await claim(description('east', { certificate }));
    await assert.rejects(
      claim(description('west', { certificate })),
      (error) =>
        error instanceof CertificateTaken &&
        error.message === 'The certificate of the machine "west" is that of the machine "east".',
    );
    await east.release();
    const west = await claim(description('west', { certificate }));
    west.abandon();
    const renewed = await claim(description('west', { certificate: 'DD' }), { force: true });
    assert.deepEqual(await names(), ['west true'], 'a machine may renew its certificate');
    await renewed.release();
  });

  it('starts no machine during a restore or after an interrupted one, and stops a running machine when a restore sets its mark', async () => {
    const notified = Promise.withResolvers<Error>();
    const { store } = scheduler;
    const { restoreLease, restoreMark } = store.keys;
    const east = await claim(description('east'), { leaseMs: 6000, onTaken: notified.resolve });
    const refused = await beginRestore('first');
    await assert.rejects(
      beginRestore('first'),
      (error) => error instanceof RestoreRuns && error.message === 'Another restore runs: that of first.',
    );
    await assert.rejects(claim(description('west')), /A restore into this Redis runs or broke off: that of first\./);
    await renews('east');
    assert.equal(await store.redis.exists(restoreMark), 0);
    await refused.release();
    // A restore whose lease ran out before the mark was set cannot set the mark.
    const withoutLease = await beginRestore('second');
    await store.redis.del(restoreLease);
    await assert.rejects(withoutLease.set(), RestoreLost);
    await withoutLease.release();
    assert.equal(await store.redis.exists(restoreMark), 0);
    const brokenOff = await beginRestore('third');
    await brokenOff.set();
    assert.ok((await notified.promise) instanceof PlatformRestoring);
    await brokenOff.release();
    // After its release, the restore may still write until another restore begins, because its mark is set.
    await brokenOff.run(['SET', 'of-third', 'kept']);
    const fourth = await beginRestore('fourth');
    await assert.rejects(brokenOff.run(['DEL', 'of-third']), RestoreLost);
    assert.ok(brokenOff.signal.aborted);
    assert.equal(await store.redis.get('of-third'), 'kept', 'a restore that slept changes nothing after another began');
    await fourth.release();
    await assert.rejects(claim(description('west')), /A restore into this Redis runs or broke off: that of third/);
    // A complete restore removes the mark, even when its lease has run out meanwhile.
    for (const hasRunOut of [false, true]) {
      const completeRestore = await beginRestore('fifth');
      await completeRestore.set();
      completeRestore.noteWhole();
      if (hasRunOut) await store.redis.del(restoreLease);
      await completeRestore.release();
      const west = await claim(description('west'));
      await west.release();
    }
    assert.deepEqual(await store.redis.keys('*restoring*'), []);
    await east.release();
  });

  it('rejects a command of a restore when it may have run twice, because the connection was lost', async () => {
    const { redis: connection } = scheduler.store;
    const mark = await beginRestore('cut off');
    await mark.run(['RPUSH', 'listed', 'before']);
    const send = connection.sendCommand.bind(connection);
    connection.sendCommand = (command, ...rest) => {
      if (command.name.startsWith('eval') && command.args.includes('cut')) {
        connection.sendCommand = send;
        setImmediate(() => connection.disconnect(true));
      }
      return send(command, ...rest);
    };
    try {
      // The stopped Redis gets the command but cannot answer before the connection ends, so the client sends it again.
      process.kill(redis.pid ?? assert.fail(), 'SIGSTOP');
      const cut = mark.run(['RPUSH', 'listed', 'cut']);
      connection.once('close', () => process.kill(redis.pid ?? assert.fail(), 'SIGCONT'));
      await assert.rejects(cut, { code: 'store-unavailable', message: /connection to Redis was lost/ });
    } finally {
      connection.sendCommand = send;
    }
    assert.deepEqual(await connection.lrange('listed', 0, -1), ['before', 'cut', 'cut'], 'the command ran twice');
    await mark.run(['DEL', 'listed']);
    await mark.release();
  });

  it('notifies a restore whose lease another restore has taken, and leaves that lease unchanged', async () => {
    const { store } = scheduler;
    const keys = [store.keys.restoreLease, store.keys.restoreMark];
    const mark = await beginRestore('slow', 1);
    await mark.set();
    assert.equal(mark.signal.aborted, false);
    await store.redis.mset(...keys.flatMap((key) => [key, 'other']));
    await eventually(() => mark.signal.aborted, 'the restore learns that it has lost its lease');
    assert.ok(mark.signal.reason instanceof RestoreLost);
    mark.noteWhole();
    await mark.release();
    assert.deepEqual(await store.redis.mget(keys), ['other', 'other']);
    await store.redis.del(keys);
  });

  it('gives a machine that joined only the roles that its token allowed', async () => {
    const { keys, redis: connection } = scheduler.store;
    const note = { password: '', certificate: '', roles: ['runtime', 'gpu-host'], joinedAt: 0 };
    await connection.hset(keys.joinedMachines, 'east', JSON.stringify(note));
    await assert.rejects(
      claim(description('east')),
      (error) =>
        error instanceof RolesRefused &&
        error.message ===
          'The machine "east" joined for the roles runtime, gpu-host, and is set up for gateway, runtime, gpu-host.',
    );
    assert.deepEqual(await names(), []);
    const lease = await claim(description('east', { roles: ['gpu-host'] }));
    await lease.release();
    await connection.del(keys.joinedMachines);
  });

  it('registers a machine again after Redis has lost its name', async () => {
    const lease = await claim(description('east'), { leaseMs: 100 });
    const { keys, redis: connection } = scheduler.store;
    await connection.del(keys.machines, keys.machine('east'), keys.machineLease('east'));
    await eventually(async () => (await names()).includes('east true'), 'the machine registers again');
    await lease.release();
  });

  it('lists for a machine its own GPU hosts and those of other machines at network addresses, and reports changes', async () => {
    const host = (name: string, address: string) => ({ name, address });
    const own = [host('gpu-host-1@east', '/run/pie/gpu-host-1.sock'), host('gpu-host-2@east', '10.0.0.1:7000')];
    let changes = 0;
    const stop = await scheduler.machines.onChange(() => {
      changes += 1;
    });
    const east = await claim(description('east', { gpuHosts: own }), { leaseMs: 6000 });
    const west = await claim(description('west', { gpuHosts: [host('gpu-host-1@west', '[::1]:7000')] }));
    await renews('east');
    const seenBy = async (machine: string) => (await scheduler.machines.gpuHosts(machine)).map(({ name }) => name);
    assert.deepEqual(await seenBy('east'), ['gpu-host-1@east', 'gpu-host-2@east', 'gpu-host-1@west']);
    assert.deepEqual(await seenBy('west'), ['gpu-host-2@east', 'gpu-host-1@west']);
    west.abandon();
    await scheduler.store.redis.del(scheduler.store.keys.machineLease('west'));
    assert.deepEqual(
      (await scheduler.machines.gpuHosts('east')).map(({ alive }) => alive),
      [true, true, false],
      'the GPU host of a dead supervisor stays listed',
    );
    assert.ok(
      (await scheduler.store.redis.pttl(scheduler.store.keys.machine('west'))) > 0,
      'the description of a dead machine expires',
    );
    await scheduler.store.redis.del(scheduler.store.keys.machine('west'));
    assert.deepEqual(await seenBy('east'), ['gpu-host-1@east', 'gpu-host-2@east']);
    await east.release();
    await eventually(() => changes >= 3, 'two machines came and one went');
    assert.equal(changes, 3, 'renewals are not changes');
    stop();
  });
});

describe('the master key of several machines', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  const key = (id: string): MasterKey => ({ id, key: createSecretKey(randomBytes(32)) });
  const keys = (...ids: string[]): MasterKeys => ({
    first: async () => key(ids[0] ?? assert.fail('no key')),
    all: async () => ids.map(key),
    byId: async (id) => (ids.includes(id) ? key(id) : null),
  });

  it('must be known on all running machines, also during a rotation', async () => {
    const scheduler = openTestScheduler(redis, { prefix: randomUUID() });
    await agreeOnMasterKey(scheduler, keys('a'), 'east');
    await agreeOnMasterKey(scheduler, keys('b'), 'east');
    assert.equal(await keyOfOthers(scheduler, 'west'), null, 'no machine runs');
    const lease = await MachineLease.claim(scheduler.store, description('east'), neverTaken);
    assert.equal(await keyOfOthers(scheduler, 'west'), 'b');
    for (const check of [agreeOnMasterKey, assertMasterKey])
      await assert.rejects(check(scheduler, keys('c'), 'west'), /west lacks the master key b, .*Copy master\.key from/);
    await assertMasterKey(scheduler, keys('c', 'b'), 'west');
    await agreeOnMasterKey(scheduler, keys('c', 'b'), 'west');
    assert.equal(await keyOfOthers(scheduler, 'west'), 'c', 'the first key of the last machine that agreed');
    await lease.release();
    await scheduler.close();
  });
});
