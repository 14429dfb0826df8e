import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { Command, Redis } from 'ioredis';
import { failingLog, silentLog } from '#scheduler/testing/log.ts';
import { openMasterKeys } from '../secrets/master-keys.ts';
import { StoreError } from '../store/errors.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type JoinContext, newestSpoken, newJoinToken, openJoin, parseJoinToken, sealJoin } from './join-tokens.ts';
import { MachineLease } from './lease.ts';
import { type RedisUser, userCommands } from './redis-users.ts';

const newKeys = () =>
  openMasterKeys('', { create: false, environment: { PIE_MASTER_KEY: randomBytes(32).toString('base64') } });
const masterKeys = newKeys();
const SEED = 20_261_128;
const PERMISSION = { roles: ['runtime'], by: 'a key', tenant: 'default' } as const;

describe('the Redis user of a machine', () => {
  let redis: TestRedis;
  let scheduler: ReturnType<typeof openTestScheduler>;
  const opened: Redis[] = [];
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = openTestScheduler(redis, { prefix: 'pie' });
  });
  after(async () => {
    for (const each of opened) each.disconnect();
    await scheduler.close();
    await redis.stop();
  });
  const connect = async ({ user: username, password }: RedisUser): Promise<Redis> => {
    const connection = new Redis({
      path: redis.socket,
      username,
      password,
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    connection.on('error', () => undefined);
    opened.push(connection);
    await connection.connect();
    await connection.ping();
    return connection;
  };
  const newToken = async () => {
    const text = await scheduler.joinTokens.create(masterKeys, 60_000, PERMISSION);
    return parseJoinToken(text)?.id ?? assert.fail('no token');
  };
  const grant = async (name: string, certificate: string) =>
    scheduler.redisUsers.grant(await newToken(), name, certificate, ['runtime']);
  const grantUser = async (name: string, certificate: string): Promise<RedisUser> => {
    const user = await grant(name, certificate);
    return typeof user === 'string' ? assert.fail(user) : user;
  };

  it('a machine’s user may use the platform’s keys and channels, and no others', async () => {
    const east = await connect(await grantUser('east', 'AA'));
    assert.equal(await east.set('pie:x', '1'), 'OK');
    assert.match(await east.info('memory'), /used_memory:/);
    assert.equal(await east.publish('pie:c', 'x'), 0);
    for (const refused of [
      ['SET', 'other', '1'],
      ['PUBLISH', 'other', 'x'],
      ['EVAL', 'return redis.call("GET", "other")', '0'],
      ['ACL', 'LIST'],
      ['CONFIG', 'GET', '*'],
      ['FLUSHALL'],
      ['KEYS', '*'],
      ['CLIENT', 'LIST'],
      ['SHUTDOWN'],
    ])
      await assert.rejects(east.call(refused[0]!, ...refused.slice(1)), /NOPERM|can't access/, refused.join(' '));
    assert.equal(await scheduler.redisUsers.mayChange(), true);
  });

  it('`grant` refuses the name of a machine that has joined or is registered', async () => {
    await grantUser('north', 'BB');
    assert.equal(await grant('north', 'CC'), 'taken');
    const machine = { name: 'south', roles: ['gateway'], host: 'h', pid: 1, version: '1', gpuHosts: [] } as const;
    const lease = await MachineLease.claim(scheduler.store, machine, {
      log: silentLog,
      onTaken: () => assert.fail('taken'),
    });
    assert.equal(await grant('south', 'DD'), 'taken');
    assert.equal(await scheduler.redisUsers.grant('nothing', 'else', 'DD', ['runtime']), 'no-token');
    await lease.release();
  });

  it('`find` throws when the master keys cannot be read, and does not report the token as unknown', async () => {
    const id = await newToken();
    const failure = new Error('master.key cannot be read');
    const fail = () => Promise.reject(failure);
    await assert.rejects(scheduler.joinTokens.find({ first: fail, all: fail, byId: fail }, id), failure);
    assert.equal(await scheduler.joinTokens.find(newKeys(), id), null, 'sealed under a key that this process lacks');
    assert.deepEqual((await scheduler.joinTokens.find(masterKeys, id))?.roles, PERMISSION.roles);
  });

  it('a grant and a removal succeed when the connection sends their calls twice', async () => {
    const { redis: connection, keys } = scheduler.store;
    const id = await newToken();
    // A key by which a call is recognized: that of the token is in the grant, and that of the lease is in the removal.
    const callKeys = [keys.joinToken(id), keys.machineLease('twice')];
    const send = connection.sendCommand.bind(connection);
    const resentKeys = new Set<string>();
    connection.sendCommand = (command, ...rest) => {
      const callKey = callKeys.find((key) => !resentKeys.has(key) && command.args.includes(key));
      // Sends the command twice, as if the first answer had been lost.
      if (callKey !== undefined && command.name.startsWith('eval')) {
        resentKeys.add(callKey);
        void send(new Command(command.name, [...command.args]));
      }
      return send(command, ...rest);
    };
    try {
      const user = await scheduler.redisUsers.grant(id, 'twice', 'JJ', ['runtime']);
      await connect(typeof user === 'string' ? assert.fail(user) : user);
      assert.equal(await scheduler.machines.remove('twice'), true);
    } finally {
      connection.sendCommand = send;
    }
    assert.equal(resentKeys.size, 2, 'the grant and the removal were sent twice');
  });

  it('`grant` succeeds even when Redis goes away before the user is made; the user is made later', async () => {
    const { redisUsers } = scheduler;
    // `reconcile` makes the user.
    const { reconcile } = redisUsers;
    redisUsers.reconcile = () => Promise.reject(new StoreError('store-unavailable', 'Redis is away.'));
    let user: RedisUser;
    try {
      user = await grantUser('cut-off', 'KK');
    } finally {
      redisUsers.reconcile = reconcile;
    }
    const stop = await redisUsers.follow(failingLog);
    await connect(user);
    stop();
  });

  it('the removal of a machine ends its connections to Redis, deletes its user, and bars its certificate', async () => {
    const user = await grantUser('west', 'EE');
    const west = await connect(user);
    const stop = await scheduler.redisUsers.follow(failingLog);
    assert.equal(await scheduler.machines.remove('west'), true);
    await eventually(() => west.status === 'end', 'Redis ends the connection');
    await assert.rejects(connect(user));
    assert.equal(await grant('west', 'EE'), 'taken', 'no machine can join with its certificate');
    await grantUser('west', 'FF');
    stop();
  });

  it('a machine joins without the drains of a removed machine of the same name', async () => {
    const { drains, machines } = scheduler;
    const drain = (name: string) =>
      drains.drainMachine({ name, gpuHosts: [{ name: `gpu-host-1@${name}` }] }, { by: 'a key', force: true });
    await grantUser('gpu', 'HH');
    for (const name of ['gpu', 'other-gpu']) await drain(name);
    const others = ['gpu-host-1@other-gpu', 'machine/other-gpu'];
    const allDrains = ['gpu-host-1@gpu', ...others, 'machine/gpu'].sort();
    assert.equal(await grant('gpu', 'II'), 'taken');
    assert.equal(await machines.remove('gpu'), true);
    // The removal keeps the drains, so that the machine takes no new work while it stops; the next grant of the name ends the drains.
    assert.deepEqual([...(await drains.names())].sort(), allDrains, 'the removal keeps the drains');
    const heard = Promise.withResolvers<void>();
    const stop = await drains.onChange(heard.resolve);
    await grantUser('gpu', 'II');
    assert.deepEqual([...(await drains.names())].sort(), others);
    await heard.promise;
    stop();
  });

  it('a user that another release has made gets the rules of this release', async () => {
    const user = await grantUser('old', 'LL');
    await scheduler.store.redis.call('ACL', 'SETUSER', user.user, '-publish');
    await assert.rejects((await connect(user)).publish('pie:c', 'x'), /NOPERM/);
    const later = openTestScheduler(redis, { prefix: 'pie' });
    await later.redisUsers.reconcile();
    await later.close();
    assert.equal(await (await connect(user)).publish('pie:c', 'x'), 0);
  });

  it('a machine’s user is made again after a restart in which Redis forgets all users', async () => {
    const user = await grantUser('lost', 'GG');
    const stop = await scheduler.redisUsers.follow(silentLog);
    await redis.kill();
    await redis.restart();
    const works = () =>
      connect(user).then(
        () => true,
        () => false,
      );
    await eventually(works, 'the user is there again');
    stop();
  });
});

describe('the policy of Redis users', () => {
  const user = fc.constantFrom('pie-machine-a', 'pie-machine-b', 'pie-machine-c', 'pie2-machine-a', 'default', 'pie');
  const hash = fc.constantFrom('0'.repeat(64), '1'.repeat(64));

  it('brings the users of machines in line and leaves other users alone; a second run has nothing to do', () => {
    const own = fc.constantFrom('pie-machine-a', 'pie-machine-b', 'pie-machine-c');
    fc.assert(
      fc.property(
        fc.dictionary(user, hash),
        fc.dictionary(own, hash),
        fc.uniqueArray(own),
        (existing, wanted, known) => {
          const users = new Map(Object.entries(existing));
          const list = () => [...users].map(([name, password]) => `user ${name} on #${password} ~pie:* +@all`);
          const goal = new Map(Object.entries(wanted));
          const current = new Set<string>(known);
          for (const [command, ...rest] of userCommands(list(), goal, current, 'pie')) {
            if (command === 'DELUSER') for (const name of rest) assert.ok(users.delete(name), `${name} is there`);
            else {
              users.set(rest[0]!, rest.find((word) => word.startsWith('#'))!.slice(1));
              current.add(rest[0]!);
            }
          }
          const others = Object.entries(existing).filter(([name]) => !name.startsWith('pie-machine-'));
          assert.deepEqual([...users].sort(), [...others, ...goal].sort());
          for (const name of goal.keys()) assert.ok(current.has(name), `${name} has the rules of this release`);
          assert.deepEqual(userCommands(list(), goal, current, 'pie'), []);
        },
      ),
      { seed: SEED },
    );
  });
});

describe('a join token', () => {
  it('seals messages that open only with the same key, direction and version', () => {
    const token = newJoinToken();
    const other = newJoinToken();
    const key = parseJoinToken(` ${token.text}\n`)?.key ?? assert.fail('no token');
    assert.deepEqual(key, token.key);
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom<JoinContext['direction']>('request', 'answer'),
        fc.integer({ min: 1, max: 3 }),
        fc.nat(),
        (message, direction, version, at) => {
          const context = { direction, version };
          // The newest version that the sender states differs from the version of the message.
          const sealed = sealJoin(key, context, message, version + 7);
          assert.equal(newestSpoken(sealed), version + 7);
          assert.deepEqual(openJoin(key, context, sealed), JSON.parse(JSON.stringify(message)));
          assert.equal(openJoin(other.key, context, sealed), null);
          const opposite = direction === 'request' ? 'answer' : 'request';
          assert.equal(openJoin(key, { direction: opposite, version }, sealed), null);
          assert.equal(openJoin(key, { direction, version: version + 1 }, sealed), null);
          const bytes = Buffer.from(sealed, 'base64url');
          bytes[at % bytes.length]! ^= 1;
          assert.equal(openJoin(key, context, bytes.toString('base64url')), null);
        },
      ),
      { seed: SEED },
    );
    for (const wrong of ['', 'pie-join.a.b', `${token.text}A`, token.text.replace('pie-join', 'pie')])
      assert.equal(parseJoinToken(wrong), null, wrong);
    assert.equal(openJoin(key, { direction: 'answer', version: 1 }, ''), null);
    for (const text of ['', sealJoin(key, { direction: 'answer', version: 1 }, {})])
      assert.equal(newestSpoken(text), null);
  });
});
