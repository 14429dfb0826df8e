import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { newInvocationId } from '../invocations/submission.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MAX_HISTORY } from './aliases.ts';
import {
  MAX_FUNCTIONS,
  MAX_RECORD_BYTES,
  MAX_VERSIONS,
  type Placement,
  servedVersions,
  versionOf,
} from './functions.ts';
import { Removals } from './removals.ts';
import type { FunctionVersion } from './types.ts';

const TENANT = 'default';

describe('releases', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  /** Different bytes for each number up to 65,535. */
  const componentOf = (n: number) => new Uint8Array([1, n % 256, n >> 8]);
  let content = 0;
  async function deploy(name: string, placement?: Placement, tenant = TENANT): Promise<FunctionVersion> {
    const componentHash = await scheduler.blobs.put(TENANT, componentOf(content++));
    const manifest = { name };
    const createdAt = 1_790_000_000_000 + content;
    const version = versionOf(manifest, componentHash);
    const stored = { name, version, tenant, manifest, componentHash, componentBytes: 3, createdAt };
    const outcome = await scheduler.functions.put(stored, placement);
    assert.ok(outcome.ok, JSON.stringify(outcome));
    return stored;
  }
  const split = (a: FunctionVersion, weight: number, b: FunctionVersion) => ({
    shares: [
      { version: a.version, weight },
      { version: b.version, weight: 100 - weight },
    ],
    by: 'key_1',
  });
  const liveShares = async (name: string) =>
    (await scheduler.releases.aliases(TENANT, name)).find(({ alias }) => alias === 'live')?.shares;
  async function submitFor({ tenant, name, version }: FunctionVersion, deadlineMs = 60_000): Promise<string> {
    const id = newInvocationId();
    const options = { id, tenant, function: name, version, functionOwner: tenant, deadlineMs };
    await scheduler.submit(submission(options));
    return id;
  }

  test('a random number picks the version of a split alias; a version, a tag or another alias leads to one version', async () => {
    const a = await deploy('split');
    const b = await deploy('split', { alias: 'next', tag: 'v2', by: 'key_1', message: 'second' });
    assert.deepEqual(
      await liveShares('split'),
      [{ version: a.version, weight: 100 }],
      'a deploy to another alias leaves the traffic of live unchanged',
    );
    const set = await scheduler.releases.set(TENANT, 'split', 'live', split(b, 10, a));
    assert.ok(set.ok);
    const { functions } = scheduler;
    assert.equal((await functions.resolve(TENANT, 'split', '', 0.05))?.version, b.version);
    assert.equal((await functions.resolve(TENANT, 'split', 'live', 0.1))?.version, a.version);
    assert.equal((await functions.find(TENANT, 'split'))?.version, a.version, 'the heaviest version');
    assert.equal((await functions.resolve(TENANT, 'split', 'next'))?.version, b.version);
    assert.equal((await functions.resolve(TENANT, 'split', 'v2'))?.version, b.version);
    assert.equal((await functions.resolve(TENANT, 'split', b.version))?.version, b.version);
    assert.equal(await functions.resolve(TENANT, 'split', 'other'), null);
    const names = (await scheduler.releases.aliases(TENANT, 'split')).map(({ alias }) => alias);
    assert.deepEqual(names, ['live', 'next', 'v2']);
  });

  test('a change with a stale revision, an unknown version or function, or a split tag is refused and changes nothing', async () => {
    const a = await deploy('refused', { alias: 'live', tag: 'v1' });
    const b = await deploy('refused', { alias: null });
    const [before] = await scheduler.releases.aliases(TENANT, 'refused');
    const set = (alias: string, change: Parameters<typeof scheduler.releases.set>[3]) =>
      scheduler.releases.set(TENANT, 'refused', alias, change);
    assert.deepEqual(await set('live', { ...split(a, 50, b), ifRevision: 99 }), {
      ok: false,
      reason: 'changed',
      revision: before?.revision,
    });
    assert.deepEqual(await set('live', split(a, 50, { ...b, version: 'f'.repeat(12) })), {
      ok: false,
      reason: 'unknown-version',
      version: 'f'.repeat(12),
    });
    assert.deepEqual(await set('v1', split(a, 50, b)), { ok: false, reason: 'tag-of-several' });
    assert.deepEqual(await scheduler.releases.set(TENANT, 'nobody', 'live', split(a, 50, b)), {
      ok: false,
      reason: 'unknown-function',
    });
    const [present] = await scheduler.releases.aliases(TENANT, 'refused');
    assert.deepEqual(present, before);
    assert.deepEqual(
      await scheduler.functions.put({ ...b, createdAt: 1 }, { alias: 'live', tag: 'v1' }),
      { ok: false, reason: 'tag-taken', version: a.version },
      'a tag cannot move to another version',
    );
    assert.deepEqual(await liveShares('refused'), [{ version: a.version, weight: 100 }]);
    const changed = await set('live', { ...split(a, 50, b), ifRevision: before?.revision });
    assert.ok(changed.ok);
    const again = await set('live', { ...split(b, 50, a), ifRevision: before?.revision });
    assert.ok(again.ok && again.alias.revision === changed.alias.revision, 'a repeated command is one change');
  });

  test('each rollback goes one step back, and the history of an alias is bounded', async () => {
    const a = await deploy('back');
    const b = await deploy('back');
    await scheduler.releases.set(TENANT, 'back', 'live', split(b, 90, a));
    const back = () => scheduler.releases.rollback(TENANT, 'back', 'live', { by: 'key_2', message: 'oops' });
    const first = await back();
    assert.ok(first.ok);
    assert.deepEqual(first.plan.to, [{ version: b.version, weight: 100 }]);
    const second = await back();
    assert.ok(second.ok);
    assert.deepEqual(await liveShares('back'), [{ version: a.version, weight: 100 }]);
    const third = await back();
    assert.ok(!third.ok && third.reason === 'nothing-before');
    const to = await scheduler.releases.rollback(TENANT, 'back', 'live', { by: 'key_2', to: b.version });
    assert.ok(to.ok);
    const history = await scheduler.releases.history(TENANT, 'back', 'live');
    // Newest first: three rollbacks, which restored b (revision 2), a (1) and b (2); then the split and the two deploys.
    assert.deepEqual(
      history.map(({ restores }) => restores),
      [2, 1, 2, undefined, undefined, undefined],
    );
    assert.equal(history[1]?.message, 'oops');
    const one = await scheduler.releases.rollback(TENANT, 'back', 'live', { by: 'key_2' });
    assert.ok(one.ok && one.plan.to[0]?.version === a.version, 'one step before the restored state');
    for (let i = 0; i < MAX_HISTORY + 5; i++)
      await scheduler.releases.set(TENANT, 'back', 'live', split(b, 1 + (i % 2), a));
    assert.equal((await scheduler.releases.history(TENANT, 'back', 'live')).length, MAX_HISTORY);
  });

  test('with onlyNew, known content leaves a rolled-back alias unchanged', async () => {
    const a = await deploy('bundled');
    const b = await deploy('bundled');
    await scheduler.releases.rollback(TENANT, 'bundled', 'live', { by: 'key_1' });
    await scheduler.functions.put(b, { alias: 'live', onlyNew: true });
    assert.deepEqual(await liveShares('bundled'), [{ version: a.version, weight: 100 }]);
    await scheduler.functions.put(b);
    assert.deepEqual(await liveShares('bundled'), [{ version: b.version, weight: 100 }]);
    const c = await deploy('bundled', { alias: 'live', onlyNew: true });
    assert.deepEqual(await liveShares('bundled'), [{ version: c.version, weight: 100 }]);
  });

  test('the numbers of functions and versions are bounded; known content can still be deployed', async () => {
    const { store, functions, removals } = scheduler;
    const a = await deploy('many');
    const b = await deploy('many');
    const running = await submitFor(a);
    await removals.removeVersion(TENANT, 'many', a.version);
    // With `b` and the draining `a`, the function has `MAX_VERSIONS`.
    const others = Array.from({ length: MAX_VERSIONS - 2 }, (_, i) => [`version:${i}`, JSON.stringify(b)]);
    await store.redis.hset(store.keys.function(TENANT, 'many'), Object.fromEntries(others));
    const next = { ...b, version: 'next' };
    assert.deepEqual(
      await functions.put(next),
      { ok: false, reason: 'too-many-versions' },
      'the draining version counts',
    );
    assert.ok((await functions.put(a)).ok);
    assert.ok((await functions.put(b)).ok);
    await scheduler.invocations.fail(running, 'internal', 'over');
    const names = Array.from({ length: MAX_FUNCTIONS }, (_, i) => `f${i}`);
    await store.redis.sadd(store.keys.functions('full'), ...names);
    const ofFullTenant = { ...b, tenant: 'full', name: 'one-more' };
    assert.deepEqual(await functions.put(ofFullTenant), { ok: false, reason: 'too-many-functions' });
    assert.equal(await store.redis.exists(store.keys.function('full', 'one-more')), 0);
    assert.ok((await functions.put({ ...ofFullTenant, name: 'f0' })).ok);
    const deployment = { tenant: 'full', manifest: { name: 'other' }, component: new Uint8Array([1]) };
    const planned = await scheduler.deployments.plan(deployment);
    assert.ok(
      !planned.ok && planned.code === 'conflict' && /as many functions as it may have: 1000/.test(planned.message),
    );
    const versions = await scheduler.deployments.plan({ ...deployment, tenant: TENANT, manifest: { name: 'many' } });
    assert.ok(!versions.ok && versions.code === 'conflict' && /pie remove many@VERSION/.test(versions.hint ?? ''));
    assert.ok((await functions.put({ ...ofFullTenant, name: 'f1' })).ok);
    const records = `${store.keys.account('full')}:records`;
    const bytes = await functions.recordBytes('full');
    // The records of `f0` and `f1` are equally long.
    assert.equal(bytes, 2 * JSON.stringify({ ...ofFullTenant, name: 'f0' }).length);
    await store.redis.hset(records, 'bytes', MAX_RECORD_BYTES);
    const refused = { ok: false, reason: 'records-too-large' };
    assert.deepEqual(await functions.put({ ...ofFullTenant, name: 'f2' }), refused);
    assert.equal(await store.redis.exists(store.keys.function('full', 'f2')), 0);
    assert.ok((await functions.put({ ...ofFullTenant, name: 'f1' })).ok, 'known content can still be deployed');
    const large = await scheduler.deployments.plan({ ...deployment, manifest: { name: 'f0' } });
    assert.ok(!large.ok && large.code === 'conflict' && /more than 8 MiB/.test(large.message));
    await store.redis.hset(records, 'bytes', bytes);
    for (const name of ['f0', 'f1']) await removals.removeFunction('full', name);
    assert.equal(await functions.recordBytes('full'), 0);
    // Remove the made-up entries: a later test reads the functions of all tenants.
    await store.redis.del(store.keys.functions('full'), store.keys.function(TENANT, 'many'));
    await store.redis.srem(store.keys.deployed, 'full/f0', `${TENANT}/many`);
    await store.redis.srem(store.keys.functions(TENANT), 'many');
  });

  test('a removed function starts no new invocation, and its data is deleted once its last invocation has ended', async () => {
    const { store, functions, removals, blobs } = scheduler;
    const a = await deploy('gone');
    const b = await deploy('gone');
    const running = await submitFor(a);
    for (const { version } of [a, b]) {
      const run = { tenant: TENANT, function: 'gone', version };
      await scheduler.admission.observe(run, { pages: { m: 4 }, memoryMb: 8 });
    }
    assert.deepEqual(await removals.removeFunction(TENANT, 'gone'), [{ version: a.version, unfinished: 1 }]);
    assert.ok(!(await blobs.has(b.componentHash)), 'a version without invocations is deleted at once');
    assert.equal(await functions.resolve(TENANT, 'gone'), null);
    assert.equal(await functions.find(TENANT, 'gone', a.version), null);
    assert.deepEqual(await functions.runnable(TENANT, 'gone', a.version), a);
    assert.deepEqual(
      (await functions.runnableVersions(TENANT)).filter(({ name }) => name === 'gone'),
      [a],
    );
    await assert.rejects(submitFor(a), (error) => error instanceof StoreError && error.code === 'not-deployed');
    await removals.sweep();
    assert.equal((await removals.draining(TENANT, 'gone')).length, 1, 'the version waits for its invocation');
    await scheduler.invocations.fail(running, 'internal', 'over');
    await removals.sweep();
    assert.deepEqual(await removals.draining(TENANT, 'gone'), []);
    assert.ok(!(await blobs.has(a.componentHash)));
    assert.equal(await removals.removeFunction(TENANT, 'gone'), null);
    assert.deepEqual(await remainingKeys('gone', [a, b]), []);
    assert.equal(await store.redis.hlen(store.keys.removals), 0);
  });

  test('a removed name can be deployed again at once, also with the same content', async () => {
    const { functions, removals, blobs } = scheduler;
    const a = await deploy('again');
    const running = await submitFor(a);
    await removals.removeFunction(TENANT, 'again');
    await functions.put(a);
    const b = await deploy('again');
    assert.deepEqual(await removals.draining(TENANT, 'again'), [], 'the version is no longer being removed');
    await scheduler.invocations.fail(running, 'internal', 'over');
    await removals.sweep();
    assert.ok(await blobs.has(a.componentHash));
    assert.deepEqual(
      (await functions.versions(TENANT, 'again')).map(({ version }) => version),
      [b.version, a.version],
    );
  });

  test("all of a tenant's versions are found without reading the removals of all tenants", async (t) => {
    const { store, functions, removals, invocations } = scheduler;
    const [a, b, c] = [await deploy('drains'), await deploy('drains'), await deploy('whole')];
    const running = [await submitFor(a), await submitFor(c)];
    await removals.removeVersion(TENANT, 'drains', a.version);
    await removals.removeFunction(TENANT, 'whole');
    const sent = t.mock.method(store.redis, 'sendCommand');
    const runnable = (await functions.runnableVersions(TENANT)).filter(
      ({ name }) => name === 'drains' || name === 'whole',
    );
    const read = sent.mock.calls.flatMap(({ arguments: [command] }) => command.args.map(String));
    assert.deepEqual(runnable, [b, a, c]);
    assert.ok(read.includes(store.keys.removedVersions(TENANT, 'whole')));
    assert.ok(!read.includes(store.keys.removals));
    for (const id of running) await invocations.fail(id, 'internal', 'over');
    await removals.sweep();
    await removals.removeFunction(TENANT, 'drains');
    assert.equal(await store.redis.hlen(store.keys.removals), 0);
  });

  test('a version that no alias serves can be removed, and `now` cancels its waiting invocations', async () => {
    const { removals, functions } = scheduler;
    const a = await deploy('one');
    const b = await deploy('one', { alias: 'canary' });
    assert.deepEqual(await removals.removeVersion(TENANT, 'one', b.version), { servedBy: ['canary'] });
    assert.ok(await scheduler.releases.remove(TENANT, 'one', 'canary'));
    const waiting = await submitFor(b);
    assert.deepEqual(await removals.removeVersion(TENANT, 'one', b.version), {
      draining: [{ version: b.version, unfinished: 1 }],
    });
    assert.deepEqual(
      await removals.removeVersion(TENANT, 'one', b.version, true),
      { draining: [] },
      'the second removal cancels the invocation',
    );
    assert.equal((await scheduler.invocations.get(waiting))?.status, 'cancelled');
    assert.equal(await removals.removeVersion(TENANT, 'one', b.version), null);
    const [c, d] = [await deploy('one', { alias: 'canary' }), await deploy('one', { alias: 'canary' })];
    assert.ok(await scheduler.releases.remove(TENANT, 'one', 'canary'));
    const [draining, cancelled] = [await submitFor(c), await submitFor(d)];
    await removals.removeVersion(TENANT, 'one', c.version);
    await removals.removeVersion(TENANT, 'one', d.version, true);
    await removals.sweep();
    assert.equal((await scheduler.invocations.get(cancelled))?.status, 'cancelled');
    assert.equal((await scheduler.invocations.get(draining))?.status, 'queued', 'the other version still drains');
    await scheduler.invocations.fail(draining, 'internal', 'over');
    await removals.sweep();
    assert.equal(await scheduler.store.redis.hlen(scheduler.store.keys.removals), 0);
    assert.deepEqual(
      (await functions.versions(TENANT, 'one')).map(({ version }) => version),
      [a.version],
    );
  });

  test('one round visits a bounded number of removed functions, and the next rounds visit the others', async (t) => {
    const { store, removals } = scheduler;
    const { redis: client, keys } = store;
    const names = Array.from({ length: 600 }, (_, i) => `f${i}`);
    for (const name of names) {
      const version = { name, version: 'v', tenant: 'strangers', manifest: { name }, componentHash: 'none' };
      await client.hset(keys.removedVersions('strangers', name), 'v', JSON.stringify(version));
      await client.sadd(keys.unfinished('strangers', name, 'v'), 'waits');
      await client.hset(keys.removals, `strangers/${name}`, 'drain');
    }
    const STEPS_PER_ROUND = 64;
    const sent = t.mock.method(store, 'script');
    await removals.sweep();
    // A round calls the script once for each version that it visits.
    assert.ok(sent.mock.callCount() <= STEPS_PER_ROUND, `${sent.mock.callCount()} versions in one round`);
    for (const name of names) await client.del(keys.unfinished('strangers', name, 'v'));
    for (let rounds = 0; (await client.hlen(keys.removals)) > 0; rounds++) {
      assert.ok(rounds < 100, 'some functions are never visited');
      await removals.sweep();
    }
    assert.deepEqual(await client.keys(keys.removedVersions('strangers', '*')), []);
  });

  test('the reaper of another process finishes a removal', async () => {
    const a = await deploy('left');
    const running = await submitFor(a);
    await scheduler.removals.removeFunction(TENANT, 'left');
    const other = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, leaseMs: 1000 });
    other.reaper.start();
    try {
      await scheduler.invocations.fail(running, 'internal', 'over');
      await eventually(async () => !(await scheduler.blobs.has(a.componentHash)), 'the component is removed');
    } finally {
      await other.close();
    }
  });

  test('a release command that is sent again after a lost reply does not undo later changes', async (t) => {
    const a = await deploy('resent');
    const b = await deploy('resent', { alias: null });
    const { store, releases, removals, functions } = scheduler;
    const sent = t.mock.method(store, 'script');
    const recordForResend = async <T>(act: () => Promise<T>): Promise<() => Promise<unknown>> => {
      const from = sent.mock.callCount();
      await act();
      const calls = sent.mock.calls.slice(from);
      return () => Promise.all(calls.map((call) => store.script(...call.arguments)));
    };
    const only = ({ version }: FunctionVersion) => ({ shares: [{ version, weight: 100 }], by: 'key_1' });
    const set = await recordForResend(() => releases.set(TENANT, 'resent', 'live', only(b)));
    await releases.set(TENANT, 'resent', 'live', only(a));
    await set();
    assert.deepEqual(await liveShares('resent'), only(a).shares);

    const put = await recordForResend(() => functions.put(b, { alias: 'live', by: 'key_1' }));
    await releases.set(TENANT, 'resent', 'live', only(a));
    await put();
    assert.deepEqual(await liveShares('resent'), only(a).shares);

    const { version } = b;
    const remove = await recordForResend(() => removals.removeVersion(TENANT, 'resent', version));
    // The removal deleted the component of `b`. As `b` was deployed last, its component has the number `content - 1`.
    await scheduler.blobs.put(TENANT, componentOf(content - 1));
    assert.ok((await functions.put(b, { alias: null })).ok);
    await remove();
    assert.equal((await functions.versions(TENANT, 'resent')).length, 2);

    const removeAll = await recordForResend(() => removals.removeFunction(TENANT, 'resent'));
    await deploy('resent');
    await removeAll();
    assert.equal((await functions.versions(TENANT, 'resent')).length, 1);
  });

  test('when the connection sends the removal of an alias twice, the caller gets the first reply', async (t) => {
    await deploy('unaliased', { alias: 'canary' });
    const { releases, store } = scheduler;
    const script = store.script.bind(store);
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      await script(...call);
      return script(...call);
    });
    assert.equal(await releases.remove(TENANT, 'unaliased', 'canary'), true);
    assert.equal(await releases.remove(TENANT, 'unaliased', 'canary'), false);
  });

  test('the deletion of a version is reported although the connection sends the deleting script twice', async (t) => {
    const { name } = await deploy('reported');
    const { store } = scheduler;
    const gone: string[] = [];
    const onGone = async (version: FunctionVersion) => void gone.push(version.name);
    const script = store.script.bind(store);
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      await script(...call);
      return script(...call);
    });
    await new Removals({ store, log: silentLog, cancel: async () => undefined, onGone }).removeFunction(TENANT, name);
    assert.deepEqual(gone, [name]);
  });

  test('deployed functions are listed for all tenants, and a tag does not make its version count as served', async () => {
    const a = await deploy('seen', undefined, 'other');
    const b = await deploy('seen', { alias: null, tag: 'v2' }, 'other');
    const found = (await Array.fromAsync(scheduler.functions.deployedFunctions())).find(
      ({ tenant }) => tenant === 'other',
    );
    assert.ok(found);
    assert.deepEqual(found.versions, [b, a]);
    assert.deepEqual(servedVersions(found), [a]);
  });

  async function remainingKeys(name: string, versions: readonly FunctionVersion[]): Promise<string[]> {
    const { redis: client, keys } = scheduler.store;
    const functionKeys = await client.keys(`${keys.function(TENANT, name)}*`);
    const learned = await client.keys(keys.learnedPages(TENANT, name, '*'));
    const blobs = await Promise.all(versions.map(({ componentHash }) => client.keys(`${keys.blob(componentHash)}*`)));
    return [...functionKeys, ...learned, ...blobs.flat()];
  }
});
