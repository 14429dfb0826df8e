import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { StoreError } from '../store/errors.ts';
import { Store } from '../store/store.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { ApiKeys, type CreateKeyOutcome, hashKey } from './api-keys.ts';
import { AuditLog } from './audit.ts';
import { EXPIRED_KEPT_MS, MAX_KEYS, SCOPES } from './rules.ts';
import { Tenants } from './tenants.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

describe('tenants and their keys', () => {
  let redis: TestRedis;
  let now = 0;
  const newStore = () => new Store(redis.connect(), { clock: () => now });
  const newApiKeys = () => new ApiKeys(newStore());
  let tenants: Tenants;
  before(async () => {
    // Redis ends lifetimes by its own clock, so this clock must start at the present. It is set here and not when the module is loaded, because the
    // tests of other files in this process may run for long in between.
    now = Math.floor(Date.now() / MINUTE) * MINUTE + MINUTE / 2;
    redis = await TestRedis.start();
    tenants = new Tenants(newStore());
  });
  after(() => redis.stop());

  const assertCreated = (outcome: CreateKeyOutcome) => {
    assert.equal(outcome.kind, 'created');
    return outcome as Extract<CreateKeyOutcome, { kind: 'created' }>;
  };

  it('a tenant is created once with a valid name and weight, and can be suspended', async () => {
    assert.equal(await tenants.create('first', { weight: 7 }), 'created');
    assert.equal(await tenants.create('first'), 'exists');
    assert.deepEqual(await tenants.get('first'), {
      name: 'first',
      createdAt: new Date(now).toISOString(),
      weight: 7,
      suspended: false,
      latency: null,
    });
    assert.equal(await tenants.change('first', { suspended: true }), true);
    assert.equal(await tenants.change('nobody', { suspended: true }), false);
    assert.deepEqual(
      (await tenants.list()).map(({ name, weight, suspended }) => [name, weight, suspended]),
      [['first', 7, true]],
    );
    for (const name of ['', 'A', 'a:b', '-a', `a${'b'.repeat(63)}`, 'a\n', '__proto__']) {
      await assert.rejects(tenants.create(name), StoreError, name);
      assert.equal(await tenants.get(name), null);
    }
    for (const weight of [0, 1001, 1.5, Number.NaN]) await assert.rejects(tenants.create('x', { weight }), StoreError);
    for (const latency of [
      { firstTokenMs: 0, perTokenMs: 1 },
      { firstTokenMs: 1, perTokenMs: 10_001 },
      { firstTokenMs: 1.5, perTokenMs: 1 },
    ])
      await assert.rejects(tenants.create('x', { latency }), StoreError);
    assert.equal(await tenants.get('x'), null);
    const latency = { firstTokenMs: 60_000, perTokenMs: 1 };
    await tenants.change('first', { latency });
    assert.deepEqual((await tenants.get('first'))?.latency, latency);
    await tenants.change('first', { latency: null });
    assert.equal((await tenants.get('first'))?.latency, null);
  });

  it('a key authenticates by its hash', async () => {
    await tenants.ensure('acme');
    const keys = newApiKeys();
    const { apiKey, key } = assertCreated(await keys.create('acme', { name: 'ci', scopes: ['deploy', 'invoke'] }));
    assert.match(apiKey, /^pie_[0-9A-Za-z]{32}$/);
    assert.deepEqual(await keys.authenticate(apiKey), {
      kind: 'valid',
      holder: { tenant: 'acme', keyId: key.id, scopes: ['invoke', 'deploy'] },
    });
    for (const wrong of ['', 'pie_', `${apiKey}0`, apiKey.toLowerCase(), `pie_${'0'.repeat(32)}`]) {
      assert.deepEqual(await keys.authenticate(wrong), { kind: 'unknown' }, wrong);
    }
    assert.equal((await keys.create('nobody', { name: 'ci', scopes: ['invoke'] })).kind, 'unknown');
    for (const name of ['', 'x'.repeat(65), 'a\u001b[31m', 'a\nb']) {
      await assert.rejects(keys.create('acme', { name, scopes: ['invoke'] }), StoreError);
    }
  });

  it('a removed key and the keys of a suspended tenant stop working at once in this process, and within 2 s in others', async () => {
    await tenants.ensure('gone');
    const [here, there] = [newApiKeys(), newApiKeys()];
    const { apiKey, key } = assertCreated(await here.create('gone', { name: 'a', scopes: ['invoke'] }));
    const other = assertCreated(await here.create('gone', { name: 'b', scopes: ['invoke'] }));
    const kinds = async (apiKey: string) =>
      (await Promise.all([here, there].map((keys) => keys.authenticate(apiKey)))).map(({ kind }) => kind);
    assert.deepEqual(await kinds(apiKey), ['valid', 'valid']);
    assert.equal(await here.remove('gone', key.id), 'removed');
    assert.deepEqual(await kinds(apiKey), ['unknown', 'valid']);
    assert.deepEqual(await kinds(other.apiKey), ['valid', 'valid']);
    await tenants.change('gone', { suspended: true });
    now += 1999;
    assert.deepEqual(await kinds(apiKey), ['unknown', 'unknown']);
    assert.deepEqual(await kinds(other.apiKey), ['suspended', 'suspended']);
    await tenants.change('gone', { suspended: false });
    assert.deepEqual(await kinds(other.apiKey), ['valid', 'valid']);
    assert.equal(await here.remove('gone', key.id), 'unknown');
  });

  it('a removed key does not come back through a query that was under way at its removal', async () => {
    await tenants.ensure('raced');
    const keys = newApiKeys();
    for (let turns = 0; turns < 100; turns++) {
      const { apiKey, key } = assertCreated(await keys.create('raced', { name: 'a', scopes: ['invoke'] }));
      const removal = keys.remove('raced', key.id);
      // The query begins at another point of the removal in each round.
      for (let i = 0; i < turns % 20; i++) await new Promise(setImmediate);
      const query = keys.authenticate(apiKey);
      assert.equal(await removal, 'removed');
      assert.equal((await keys.authenticate(apiKey)).kind, 'unknown', `after ${turns % 20} turns of the event loop`);
      await query;
      assert.equal((await keys.authenticate(apiKey)).kind, 'unknown', 'a late query is not cached');
    }
  });

  it('a clock that steps back by an hour does not prolong the cache of a key', async () => {
    await tenants.ensure('back');
    const keys = newApiKeys();
    const { apiKey } = assertCreated(await keys.create('back', { name: 'a', scopes: ['invoke'] }));
    assert.equal((await keys.authenticate(apiKey)).kind, 'valid');
    await tenants.change('back', { suspended: true });
    now -= 60 * MINUTE;
    try {
      assert.equal((await keys.authenticate(apiKey)).kind, 'suspended');
    } finally {
      now += 60 * MINUTE;
    }
  });

  it('for a week, an expired key is distinguished from an unknown one', async () => {
    await tenants.ensure('brief');
    const keys = newApiKeys();
    const { apiKey, key } = assertCreated(
      await keys.create('brief', { name: 'a', scopes: ['invoke'], expiresAt: now + 1000 }),
    );
    assert.equal((await keys.authenticate(apiKey)).kind, 'valid');
    now += 1000;
    assert.deepEqual(await keys.authenticate(apiKey), { kind: 'expired', at: now });
    assert.deepEqual(
      (await keys.list('brief')).map(({ id }) => id),
      [key.id],
    );
    const remainingMs = await redis
      .connect()
      .pttl(`pie:key:${await redis.connect().hget('pie:tenant-keys:brief', key.id)}`);
    assert.ok(Math.abs(remainingMs - EXPIRED_KEPT_MS) < 2 * MINUTE, `${remainingMs} ms`);
  });

  it('after a rotation both keys work until the grace period or the expiry of the old key ends', async () => {
    await tenants.ensure('turn');
    const keys = newApiKeys();
    const old = assertCreated(await keys.create('turn', { name: 'ci', scopes: ['admin'] }));
    const next = assertCreated(await keys.rotate('turn', old.key.id, MINUTE));
    assert.deepEqual({ ...next.key, id: '', createdAt: 0 }, { ...old.key, id: '', createdAt: 0 });
    assert.equal((await keys.authenticate(old.apiKey)).kind, 'valid');
    assert.equal((await keys.authenticate(next.apiKey)).kind, 'valid');
    now += MINUTE;
    assert.equal((await keys.authenticate(old.apiKey)).kind, 'expired');
    assert.equal((await keys.authenticate(next.apiKey)).kind, 'valid');
    assert.equal((await keys.rotate('turn', old.key.id, MINUTE)).kind, 'unknown');
    const ending = assertCreated(await keys.create('turn', { name: 'x', scopes: ['invoke'], expiresAt: now + 10 }));
    const after = assertCreated(await keys.rotate('turn', ending.key.id, MINUTE));
    assert.equal(after.key.expiresAt, now + 10);
    assert.equal((await keys.get('turn', ending.key.id))?.expiresAt, now + 10);
  });

  it('keepLast refuses to remove the last key that administers a tenant for more than a day', async () => {
    await tenants.ensure('last');
    const keys = newApiKeys();
    const admin = assertCreated(await keys.create('last', { name: 'a', scopes: ['admin'] }));
    const plain = assertCreated(await keys.create('last', { name: 'b', scopes: ['invoke', 'deploy'] }));
    const brief = assertCreated(await keys.create('last', { name: 'c', scopes: ['operator'], expiresAt: now + 1000 }));
    now += 1000;
    assert.equal(await keys.remove('last', admin.key.id, { keepLast: true }), 'last');
    assert.equal(await keys.remove('last', plain.key.id, { keepLast: true }), 'removed');
    assert.equal(await keys.remove('last', brief.key.id, { keepLast: true }), 'removed');
    // A key that expires in exactly a day does not count; the key below, which expires a minute later, does.
    assertCreated(await keys.create('last', { name: 'd', scopes: ['operator'], expiresAt: now + DAY }));
    assert.equal(await keys.remove('last', admin.key.id, { keepLast: true }), 'last', 'the other key expires too soon');
    const next = assertCreated(await keys.rotate('last', admin.key.id, MINUTE));
    assert.equal(
      await keys.remove('last', next.key.id, { keepLast: true }),
      'last',
      'the rotated key expires too soon',
    );
    assert.equal(await keys.remove('last', admin.key.id, { keepLast: true }), 'removed');
    assertCreated(await keys.create('last', { name: 'e', scopes: ['operator'], expiresAt: now + DAY + MINUTE }));
    assert.equal(await keys.remove('last', next.key.id, { keepLast: true }), 'removed');
  });

  it('creation, rotation and removal of a key each write one entry to the audit log', async () => {
    await tenants.ensure('acts');
    const [keys, audit] = [newApiKeys(), new AuditLog(newStore(), silentLog)];
    const acts = async () =>
      (await audit.read({ tenant: 'acts', limit: 10 })).map(({ actor, action, target, details }) => [
        actor,
        action,
        target,
        details,
      ]);
    const { key } = assertCreated(
      await keys.create('acts', { name: 'a', scopes: ['invoke'], expiresAt: now + MINUTE }, 'key_1'),
    );
    const next = assertCreated(await keys.rotate('acts', key.id, 0, 'key_2'));
    assert.equal((await keys.rotate('acts', key.id, 0, 'key_2')).kind, 'unknown');
    assert.equal(await keys.remove('acts', next.key.id, { actor: 'key_3' }), 'removed');
    assert.equal(await keys.remove('acts', next.key.id, { actor: 'key_3' }), 'unknown');
    const forgotten = assertCreated(await keys.create('acts', { name: 'b', scopes: ['invoke'] }));
    const store = newStore();
    await store.call((redis) => redis.del(store.keys.apiKey(hashKey(forgotten.apiKey))));
    assert.equal(await keys.remove('acts', forgotten.key.id, { actor: 'key_3' }), 'unknown', 'its record is gone');
    const expiresAt = new Date(now + MINUTE).toISOString();
    assert.deepEqual(await acts(), [
      ['key_3', 'key.remove', next.key.id, { name: 'a' }],
      ['key_2', 'key.rotate', key.id, { by: next.key.id, graceMs: 0 }],
      ['key_1', 'key.create', key.id, { name: 'a', scopes: ['invoke'], expiresAt }],
    ]);
  });

  it('a tenant has at most MAX_KEYS keys, and expired ones make room', async () => {
    await tenants.ensure('many');
    const keys = newApiKeys();
    const expiring = { name: 'a', scopes: SCOPES, expiresAt: now + 1000 };
    for (let i = 0; i < MAX_KEYS; i++)
      assertCreated(await keys.create('many', i === 0 ? expiring : { name: 'a', scopes: ['invoke'] }));
    assert.equal((await keys.create('many', { name: 'a', scopes: ['invoke'] })).kind, 'full');
    now += 1000;
    assertCreated(await keys.create('many', { name: 'a', scopes: ['invoke'] }));
    assert.equal((await keys.list('many')).length, MAX_KEYS);
  });

  it('the last use of a key is written once a minute, and a use does not restore a removed key', async () => {
    await tenants.ensure('used');
    const store = newStore();
    const keys = new ApiKeys(store);
    const { apiKey, key } = assertCreated(await keys.create('used', { name: 'a', scopes: ['invoke'] }));
    const lastUse = async () => (await keys.get('used', key.id))?.lastUsedAt ?? null;
    assert.equal(await lastUse(), null);
    await keys.authenticate(apiKey);
    await eventually(async () => (await lastUse()) === Math.floor(now / MINUTE) * MINUTE, 'the use is written');
    let writtenUses = 0;
    const script = store.script.bind(store);
    store.script = (...args) => {
      if (args[0].name === 'touch-key') writtenUses += 1;
      return script(...args);
    };
    for (let i = 0; i < 50; i++) {
      now += 100;
      await keys.authenticate(apiKey);
    }
    assert.equal(writtenUses, 0);
    now += MINUTE;
    await keys.authenticate(apiKey);
    assert.equal(writtenUses, 1);
    await eventually(async () => (await lastUse()) === Math.floor(now / MINUTE) * MINUTE, 'the next use is written');
    await keys.remove('used', key.id);
    now += 1000;
    assert.equal((await keys.authenticate(apiKey)).kind, 'unknown');
    assert.deepEqual(await keys.list('used'), []);
  });

  it('a full Redis refuses new keys and tenants, and accepts removals and audit entries', async () => {
    await tenants.ensure('full');
    const [keys, audit] = [newApiKeys(), new AuditLog(newStore(), silentLog)];
    const { apiKey, key } = assertCreated(await keys.create('full', { name: 'a', scopes: ['invoke'] }));
    const connection = redis.connect();
    await connection.config('SET', 'maxmemory', '1mb');
    try {
      const isFull = (error: unknown) => error instanceof StoreError && error.full;
      await assert.rejects(keys.create('full', { name: 'b', scopes: ['invoke'] }), isFull);
      await assert.rejects(tenants.create('one-more'), isFull);
      assert.equal((await keys.authenticate(apiKey)).kind, 'valid');
      assert.equal(await keys.remove('full', key.id), 'removed');
      await audit.record('key_1', 'full', 'key.remove', key.id);
      assert.equal((await audit.read({ tenant: 'full', limit: 1 }))[0]?.target, key.id);
    } finally {
      await connection.config('SET', 'maxmemory', '0');
    }
  });

  it('the audit log is read backwards, for one tenant or for all', async () => {
    const audit = new AuditLog(newStore(), silentLog);
    for (let i = 0; i < 5; i++) await audit.record('key_1', i % 2 === 0 ? 'even' : 'odd', 'quota.set', `q${i}`, { i });
    const [newest, second] = await audit.read({ limit: 2 });
    assert.deepEqual(newest, {
      cursor: newest?.cursor ?? '',
      at: now,
      tenant: 'even',
      actor: 'key_1',
      action: 'quota.set',
      target: 'q4',
      details: { i: 4 },
    });
    const rest = await audit.read({ before: second?.cursor ?? '', limit: 3 });
    assert.deepEqual(
      rest.map(({ target }) => target),
      ['q2', 'q1', 'q0'],
    );
    assert.deepEqual(
      (await audit.read({ tenant: 'odd', limit: 10 })).map(({ target }) => target),
      ['q3', 'q1'],
    );
    await audit.record('key_1', 'odd', 'x.y', 't'.repeat(1000), { long: 'd'.repeat(5000) });
    const [long] = await audit.read({ limit: 1 });
    assert.deepEqual([long?.target.length, long?.details], [256, { truncated: true }]);
    await audit.record('key_1', 'odd', 'x.y', 't', { n: 1n });
    assert.deepEqual((await audit.read({ limit: 1 }))[0]?.details, { notJson: true });
    await assert.rejects(audit.read({ before: 'nonsense', limit: 1 }), StoreError);
  });

  it('frequent acts do not displace guarded ones, and readers get both kinds in one order', async () => {
    const audit = new AuditLog(newStore(), silentLog);
    for (let i = 0; i < 3; i++) {
      await audit.record('key_1', 'flood', 'quota.set', `q${i}`);
      await audit.record('key_2', 'flood', 'alias.set', `a${i}`);
    }
    const targets = (acts: readonly { target: string }[]) => acts.map(({ target }) => target);
    const order = ['a2', 'q2', 'a1', 'q1', 'a0', 'q0'];
    const paged: string[] = [];
    for (let before: string | undefined; ; ) {
      const page = await audit.read({ tenant: 'flood', limit: 1, ...(before !== undefined && { before }) });
      before = page.at(-1)?.cursor;
      if (before === undefined) break;
      paged.push(...targets(page));
    }
    assert.deepEqual(paged, order);
    assert.deepEqual(targets(await audit.read({ limit: 6 })), order);
    const connection = redis.connect();
    // A tenant's stream keeps about 2,000 acts; Redis cuts whole nodes of a stream, so some more may stay.
    const many = Array.from({ length: 4000 }, () => audit.record('key_2', 'flood', 'alias.set', 'again'));
    await Promise.all(many);
    const kept = await connection.xlen('pie:audit:flood');
    assert.ok(kept >= 2000 && kept < 2500, `${kept} acts`);
    assert.equal(await connection.xlen('pie:guarded-audit:flood'), 3);
  });

  it('recording an act without a connection does not fail, and the whole act is logged as an error', async () => {
    const log = new CollectedLog();
    const connection = redis.connect();
    const audit = new AuditLog(new Store(connection, { deadlineMs: 200 }), log);
    await audit.record('key_1', 'gone', 'quota.set', 'kv-pages', { limit: 1 });
    connection.disconnect();
    await audit.record('key_1', 'gone', 'quota.set', 'kv-pages', { limit: 2 });
    const [{ level, fields } = assert.fail('nothing was logged'), ...more] = log.records;
    const { error, ...act } = fields;
    assert.ok(error instanceof Error);
    assert.deepEqual(
      [level, act, more],
      [
        'error',
        { actor: 'key_1', tenant: 'gone', action: 'quota.set', target: 'kv-pages', details: '{"limit":2}' },
        [],
      ],
    );
  });
});
