import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { differences } from '../functions/differences.ts';
import { versionOf } from '../functions/functions.ts';
import type { Manifest } from '../functions/manifest.ts';
import type { FunctionVersion } from '../functions/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { openMasterKeys } from './master-keys.ts';
import { SecretError } from './secrets.ts';

const ZONE = 'eu-north-zone-7';
const MANIFEST: Manifest = { name: 'story', environment: { ZONE, EMPTY: '' } };
const component = new Uint8Array([1, 2, 3]);
const newKey = () => randomBytes(32).toString('base64');
const masterKeysOf = (...keys: string[]) =>
  openMasterKeys('', { create: false, environment: { PIE_MASTER_KEY: keys.join() } });

describe('the environment of functions', () => {
  let redis: TestRedis;
  const [oldKey, nextKey] = [newKey(), newKey()];
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Opens the same installation with these master keys and a builder. */
  async function withKeys<T>(prefix: string, keys: string[], body: (scheduler: Scheduler) => Promise<T>): Promise<T> {
    const scheduler = openTestScheduler(redis, { prefix, masterKeys: masterKeysOf(...keys) });
    const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
    const worker = scheduler.createBuildWorker({
      runtimeId: 'runtime',
      build: async () => ({ ok: true, artifact: {} }),
    });
    worker.start();
    try {
      return await body(scheduler);
    } finally {
      await worker.close();
      await lease.release();
      await scheduler.close();
    }
  }

  async function deploy({ deployments }: Scheduler, manifest = MANIFEST, tenant = 'default') {
    const outcome = await deployments.deploy({ tenant, manifest, component });
    assert.ok(outcome.ok, JSON.stringify(outcome));
    return outcome;
  }

  async function storedTexts(prefix: string): Promise<string> {
    const connection = redis.connect();
    const hashes = await connection.keys(`${prefix}:function:*`);
    const texts = await Promise.all(hashes.filter((key) => !key.endsWith(':live')).map((key) => connection.hvals(key)));
    return texts.flat().join('\n');
  }

  test('an environment is sealed and opened, and equal values make the same version', () =>
    withKeys('sealed', [oldKey], async (scheduler) => {
      const { environments, functions } = scheduler;
      const { version } = await deploy(scheduler);
      assert.deepEqual(version.manifest.environment, { ZONE: '(sealed)', EMPTY: '(sealed)' });
      assert.ok(!(await storedTexts('sealed')).includes(ZONE));
      assert.deepEqual(await environments.open(version), new Map(Object.entries(MANIFEST.environment ?? {})));
      const again = await deploy(scheduler, { environment: { EMPTY: '', ZONE }, name: 'story' });
      assert.deepEqual([again.created, again.version.version], [false, version.version]);
      const other = await deploy(scheduler, { ...MANIFEST, environment: { ZONE: 'elsewhere', EMPTY: '' } });
      assert.notEqual(other.version.version, version.version);
      const planned = await scheduler.deployments.plan({ tenant: 'default', manifest: MANIFEST, component });
      assert.ok(planned.ok && planned.exists && planned.version.version === version.version);
      const [before, now] = await Promise.all(
        [other.version, version].map((each) => environments.withOpenedValues(each)),
      );
      assert.deepEqual(differences(before as FunctionVersion, now as FunctionVersion), [
        { field: 'environment.ZONE', from: '(a value)', to: '(another value)' },
      ]);
      const elsewhere = await deploy(scheduler, MANIFEST, 'acme');
      // The version ids that a reader could compute from guessed values, or from the sealed manifest.
      const guesses = [MANIFEST, version.manifest].map((manifest) => versionOf(manifest, version.componentHash));
      assert.equal(
        new Set([...guesses, version.version, elsewhere.version.version]).size,
        4,
        'all ids differ, so a version id confirms no guess of the values',
      );
      const { ZONE: sealedZone = '' } = version.environment ?? {};
      for (const wrong of [
        { ...version, name: 'other' },
        { ...version, tenant: 'acme' },
        { ...version, environment: { ...version.environment, EMPTY: sealedZone } },
        { ...version, environment: { ZONE: sealedZone } },
      ]) {
        // A version that is not stored, so that `open` finds no newer copy.
        const unstored = { ...wrong, version: 'unstored' };
        await assert.rejects(environments.open(unstored), SecretError);
        assert.equal(await environments.holds(unstored, MANIFEST.environment ?? {}), false);
      }
      assert.equal((await functions.versions('default', 'story')).length, 2);
    }));

  test('after a rotation of the master key, an environment keeps its version and can be opened', async () => {
    const { version: before } = await withKeys('turned', [oldKey], (scheduler) => deploy(scheduler));
    await withKeys('turned', [nextKey, oldKey], async (scheduler) => {
      assert.equal((await deploy(scheduler)).created, false);
      assert.equal(await scheduler.environments.reseal('default'), 1);
      assert.equal(await scheduler.environments.reseal('default'), 0);
    });
    await withKeys('turned', [nextKey], async (scheduler) => {
      const again = await deploy(scheduler);
      assert.deepEqual([again.created, again.version.version], [false, before.version]);
      // A version as a runtime read it before the values were resealed.
      assert.equal((await scheduler.environments.open(before)).get('ZONE'), ZONE);
      const removed = await scheduler.removals.removeFunction('default', 'story');
      assert.deepEqual(removed, []);
      await assert.rejects(scheduler.environments.open(before), /The variable ZONE cannot be opened: .*not known here/);
    });
  });

  test('an environment is resealed although the master key of another version is lost', async () => {
    const named = (name: string) => ({ ...MANIFEST, name });
    const before = await withKeys('partly', [oldKey], (scheduler) => deploy(scheduler, named('a')));
    await withKeys('partly', [newKey()], (scheduler) => deploy(scheduler, named('lost')));
    const after = await withKeys('partly', [oldKey], (scheduler) => deploy(scheduler, named('z')));
    await withKeys('partly', [nextKey, oldKey], async ({ environments }) => {
      await assert.rejects(environments.reseal('default'), SecretError);
    });
    await withKeys('partly', [nextKey], async ({ environments }) => {
      for (const { version } of [before, after]) assert.equal((await environments.open(version)).get('ZONE'), ZONE);
    });
  });

  test('the environment of a version that was stored unsealed is read, and reseal seals it', () =>
    withKeys('plain', [oldKey], async (scheduler) => {
      const { blobs, functions, environments } = scheduler;
      const componentHash = await blobs.put('default', component);
      const version = versionOf(MANIFEST, componentHash);
      const plain = { name: 'story', version, tenant: 'default', manifest: MANIFEST, componentHash };
      await functions.put({ ...plain, componentBytes: component.length, createdAt: 1 });
      assert.equal((await deploy(scheduler)).version.version, version);
      assert.equal(await environments.reseal('default'), 1);
      assert.ok(!(await storedTexts('plain')).includes(ZONE));
      const sealed = await functions.get('default', 'story');
      assert.ok(sealed !== null && sealed.manifest.environment?.ZONE === '(sealed)');
      assert.equal((await environments.open(sealed)).get('ZONE'), ZONE);
      assert.equal((await deploy(scheduler)).created, false);
    }));

  test('an environment is refused without a master key, unless it is empty', async () => {
    const scheduler = openTestScheduler(redis);
    try {
      await assert.rejects(scheduler.environments.seal('default', MANIFEST), SecretError);
      const nothing = await scheduler.environments.seal('default', { name: 'story' });
      assert.deepEqual(nothing, { manifest: { name: 'story' }, environment: undefined, mark: '' });
    } finally {
      await scheduler.close();
    }
  });
});
