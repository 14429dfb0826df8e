import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { versionOf } from './functions.ts';
import { isStale, type Resolution, type Resolved } from './resolutions.ts';
import { type FunctionVersion, ownerOf } from './types.ts';

/**
 * A function that the platform lends to tenants: a tenant's invocation runs it when the tenant has no function of that
 * name, or when the tenant's function lacks the reference.
 */
const NAME = 'openai-chat';
/** `default` is the tenant of the platform, which owns the lent functions. */
const TENANTS = ['default', 'acme', 'blue'];
/** The empty reference stands for the alias `live`; it is drawn twice as often. */
const REFERENCES = ['', '', 'canary'];
/** Number of components, each of which makes one version of the function, the same for every tenant. */
const CONTENTS = 4;
/** A version that is never deployed. */
const UNKNOWN_VERSION = 'ffffffffffff';

/** Submits as a gateway does. Returns null when the reference leads to no version. */
async function submitTo<T>(resolution: Resolution, submit: (resolved: Resolved) => Promise<T>): Promise<T | null> {
  const cached = resolution.cached();
  if (cached !== null) {
    try {
      return await submit(cached);
    } catch (error) {
      if (!isStale(error)) throw error;
    }
  }
  const current = await resolution.current();
  return current && submit(current);
}

const pick = {
  tenant: fc.constantFrom(...TENANTS),
  content: fc.nat(CONTENTS - 1),
  reference: fc.constantFrom(...REFERENCES),
};
const change = fc.record({
  kind: fc.constantFrom('deploy', 'deploy', 'split', 'unalias', 'removeVersion', 'removeFunction', 'rollback'),
  weight: fc.integer({ min: 1, max: 99 }),
  ...pick,
});
const invocation = fc.record({
  kind: fc.constant('invoke' as const),
  gateway: fc.nat(1),
  byVersion: fc.constantFrom(true, false, false),
  ...pick,
});
const history = fc.array(fc.oneof({ weight: 1, arbitrary: change }, { weight: 3, arbitrary: invocation }), {
  minLength: 40,
  maxLength: 80,
  size: 'max',
});

describe('resolutions', () => {
  let redis: TestRedis;
  const open: Scheduler[] = [];
  before(async () => {
    redis = await TestRedis.start();
  });
  after(async () => {
    await Promise.all(open.map((scheduler) => scheduler.close()));
    await redis.stop();
  });

  /** Opens the schedulers of several processes on the same Redis keys. */
  async function openSchedulers(count: number): Promise<Scheduler[]> {
    const prefix = `test-${randomUUID()}`;
    const opened = Array.from({ length: count }, () => openTestScheduler(redis, { prefix }));
    open.push(...opened);
    return opened;
  }

  async function deploy({ blobs, functions }: Scheduler, tenant: string, content: number) {
    const componentHash = await blobs.put(tenant, new Uint8Array([1, content]));
    const version = versionOf({ name: NAME }, componentHash);
    const stored = {
      name: NAME,
      version,
      tenant,
      manifest: { name: NAME },
      componentHash,
      componentBytes: 2,
      createdAt: Date.now(),
    };
    assert.ok((await functions.put(stored)).ok);
    return version;
  }

  /** Invokes as a gateway does. @returns the version that runs, or null when the reference leads to none */
  async function invoke(scheduler: Scheduler, tenant: string, reference = '') {
    const resolution = scheduler.resolutions.of(tenant, NAME, reference, () => undefined);
    const id = await submitTo(
      resolution,
      async ({ version, basis }) => (await scheduler.submit(submissionOf(tenant, version, basis))).id,
    );
    if (id === null) return null;
    const record = await scheduler.invocations.get(id);
    assert.equal(record?.tenant, tenant);
    return record?.version ?? null;
  }
  const submissionOf = (tenant: string, stored: FunctionVersion, basis: Resolved['basis']) =>
    submission({
      tenant,
      function: stored.name,
      version: stored.version,
      functionOwner: ownerOf(stored),
      ...(basis && { basis }),
    });

  test('resolutions follow every change at once in every process, for functions of the tenant and of the platform', async () => {
    await fc.assert(
      fc.asyncProperty(history, async (acts) => {
        const [operator, ...gateways] = (await openSchedulers(3)) as [Scheduler, Scheduler, Scheduler];
        /** The version of each content; undefined until a tenant has deployed it. */
        const versions = Array.from({ length: CONTENTS }, (): string | undefined => undefined);
        for (const act of acts) {
          const { tenant, content, reference } = act;
          const version = versions[content] ?? UNKNOWN_VERSION;
          if (act.kind === 'invoke') {
            const requested = act.byVersion ? version : reference;
            // The operator asks Redis; the gateway may use its cache.
            const served = await operator.functions.serving(
              tenant === 'default' ? ['default'] : [tenant, 'default'],
              NAME,
              requested,
            );
            const ran = await invoke(gateways[act.gateway] ?? operator, tenant, requested);
            const allowed: (string | null)[] = served === null ? [null] : served.shares.map((share) => share.version);
            assert.ok(allowed.includes(ran), `${tenant}: ${requested} ran ${ran}, not one of ${allowed}`);
          } else if (act.kind === 'deploy') {
            versions[content] = await deploy(operator, tenant, content);
          } else if (act.kind === 'split') {
            // The tenant may lack these versions. Redis then refuses the change, which must have no effect.
            const [first = UNKNOWN_VERSION, second] = versions.filter((known) => known !== undefined);
            const shares =
              second === undefined
                ? [{ version: first, weight: 100 }]
                : [
                    { version: first, weight: act.weight },
                    { version: second, weight: 100 - act.weight },
                  ];
            await operator.releases.set(tenant, NAME, reference || 'live', { shares, by: 'key_1' });
          } else if (act.kind === 'unalias') await operator.releases.remove(tenant, NAME, reference || 'live');
          else if (act.kind === 'removeVersion') await operator.removals.removeVersion(tenant, NAME, version, false);
          else if (act.kind === 'removeFunction') await operator.removals.removeFunction(tenant, NAME, false);
          else await operator.releases.rollback(tenant, NAME, reference || 'live', { by: 'key_1' });
        }
      }),
      { seed: 1, numRuns: process.env.PIE_TEST_ALL ? 300 : 10 },
    );
  });

  test('resolutions never lead to a version that was replaced before the request', async () => {
    const [operator, ...gateways] = await openSchedulers(3);
    assert.ok(operator);
    // Content `i` makes the version `versions[i]`, which is in this list before its deploy begins.
    const versions = [await deploy(operator, 'default', 0)];
    let newestBegun = 0;
    let newestDeployed = 0;
    let isDone = false;
    const changing = async () => {
      for (let content = 1; content <= 40; content++) {
        versions.push(versionOf({ name: NAME }, await operator.blobs.put('default', new Uint8Array([1, content]))));
        newestBegun = content;
        await deploy(operator, 'default', content);
        newestDeployed = content;
      }
    };
    const invoking = async (gateway: Scheduler) => {
      while (!isDone) {
        const oldest = newestDeployed;
        const ran = versions.indexOf((await invoke(gateway, 'acme')) ?? '');
        assert.ok(ran >= oldest && ran <= newestBegun, `${ran} of ${oldest} to ${newestBegun}`);
      }
    };
    const changed = changing().finally(() => {
      isDone = true;
    });
    await Promise.all([changed, ...gateways.flatMap((gateway) => [invoking(gateway), invoking(gateway)])]);
  });

  test('an invocation by a cached resolution takes one Redis command', async () => {
    const [gateway] = await openSchedulers(1);
    assert.ok(gateway);
    await deploy(gateway, 'default', 0);
    const { redis: connection } = gateway.store;
    const submitOnce = () =>
      submitTo(
        gateway.resolutions.of('acme', NAME, '', () => undefined),
        ({ version, basis }) => gateway.submit(submissionOf('acme', version, basis)),
      );
    // The first submission asks Redis for the version and fills the cache.
    await submitOnce();
    await submitOnce();
    await connection.config('RESETSTAT');
    for (let i = 0; i < 10; i++) await submitOnce();
    const calls = /cmdstat_evalsha:calls=(\d+)/.exec(await connection.info('commandstats'))?.[1];
    assert.equal(calls, '10');
  });

  test('the script that stores invocations refuses a stale resolution, and stores nothing', async () => {
    for (const byVersion of [false, true]) {
      const [gateway] = await openSchedulers(1);
      assert.ok(gateway);
      const lent = await deploy(gateway, 'default', 0);
      const reference = byVersion ? lent : '';
      const resolved: Resolved[] = [];
      const submit = async (one: Resolved) => void resolved.push(one);
      // The first submission asks Redis for the version and fills the cache, so the second one gets the version from the cache.
      for (let i = 0; i < 2; i++) {
        await submitTo(
          gateway.resolutions.of('acme', NAME, reference, () => undefined),
          submit,
        );
      }
      const [asked, cached] = resolved;
      assert.ok(asked && cached?.basis && asked.basis === undefined);
      // A function of the tenant's own takes the place of the platform's, also when its content is the same.
      const own = await deploy(gateway, 'acme', byVersion ? 0 : 1);
      const stale = submissionOf('acme', cached.version, cached.basis);
      await assert.rejects(
        gateway.submit(stale),
        (error) => error instanceof StoreError && error.code === 'stale-resolution',
      );
      assert.equal(await gateway.invocations.get(stale.id), null);
      assert.equal(await invoke(gateway, 'acme', reference), own);
      assert.ok(
        (await gateway.submit(submissionOf('acme', asked.version, undefined))).created,
        'without a basis, it is enough that the version is deployed',
      );
    }
  });

  test('a request is refused only for the version that Redis has, not for a cached one', async () => {
    const [operator, gateway] = await openSchedulers(2);
    assert.ok(operator && gateway);
    const old = await deploy(operator, 'default', 0);
    await invoke(gateway, 'default');
    const checked: string[] = [];
    const submitUnless = (refused: string) =>
      submitTo(
        gateway.resolutions.of('default', NAME, '', ({ version }) => {
          checked.push(version);
          if (version === refused) throw new RangeError(version);
        }),
        async ({ version, basis }) => (await gateway.submit(submissionOf('default', version, basis))).created,
      );
    await assert.rejects(submitUnless(old), RangeError);
    assert.deepEqual(checked.splice(0), [old]);
    const replacement = await deploy(operator, 'default', 1);
    assert.equal(await submitUnless(old), true);
    assert.deepEqual(checked.splice(0), [old, replacement]);
  });
});
