import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MAX_SHARES } from './aliases.ts';
import { versionOf } from './functions.ts';
import type { Resolved } from './resolutions.ts';
import { type FunctionVersion, ownerOf } from './types.ts';

/** A function that the platform lends to tenants without one of that name. */
const NAME = 'openai-chat';
const TENANTS = ['default', 'acme', 'blue'];
const REFERENCES = ['', '', 'canary'];
const CONTENTS = 4;

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

  async function deploy({ blobs, functions }: Scheduler, tenant: string, content: number, name = NAME) {
    const componentHash = await blobs.put(tenant, new Uint8Array([1, content]));
    const version = versionOf({ name }, componentHash);
    const stored = {
      name,
      version,
      tenant,
      manifest: { name },
      componentHash,
      componentBytes: 2,
      createdAt: Date.now(),
    };
    assert.ok((await functions.put(stored)).ok);
    return version;
  }

  /** Submits as a gateway does. @returns the version that runs, or null */
  async function invoke({ resolutions, submit, invocations }: Wired, tenant: string, reference = '', name = NAME) {
    const id = await resolutions.submit(tenant, name, reference, {
      check: () => undefined,
      submit: async ({ version, basis }: Resolved) => (await submit(submissionOf(tenant, version, basis))).id,
    });
    if (id === null) return null;
    const record = await invocations.get(id);
    assert.equal(record?.tenant, tenant);
    return record?.version ?? null;
  }
  type Wired = Pick<Scheduler, 'resolutions' | 'invocations'> & { submit: Scheduler['submit'] };
  const wired = (scheduler: Scheduler): Wired => ({
    resolutions: scheduler.resolutions,
    invocations: scheduler.invocations,
    submit: (given) => scheduler.submit(given),
  });
  const submissionOf = (tenant: string, stored: FunctionVersion, basis: Resolved['basis']) =>
    submission({
      ...{ tenant, function: stored.name, version: stored.version, functionOwner: ownerOf(stored) },
      ...(basis && { basis }),
    });

  test('follow every change at once in every process, for own and lent functions', async () => {
    await fc.assert(
      fc.asyncProperty(history, async (acts) => {
        const [operator, ...gateways] = (await openSchedulers(3)) as [Scheduler, Scheduler, Scheduler];
        const versions = Array.from({ length: CONTENTS }, () => '');
        for (const act of acts) {
          const { tenant, content, reference } = act;
          const version = versions[content] || 'ffffffffffff';
          if (act.kind === 'invoke') {
            const requested = act.byVersion ? version : reference;
            const served = await operator.functions.serving(
              tenant === 'default' ? ['default'] : [tenant, 'default'],
              NAME,
              requested,
            );
            const ran = await invoke(wired(gateways[act.gateway] ?? operator), tenant, requested);
            const allowed: (string | null)[] = served === null ? [null] : served.shares.map((share) => share.version);
            assert.ok(allowed.includes(ran), `${tenant}: ${requested} ran ${ran}, not one of ${allowed}`);
          } else if (act.kind === 'deploy') {
            versions[content] = await deploy(operator, tenant, content);
          } else if (act.kind === 'split') {
            const shares = [...new Set(versions.filter((known) => known !== ''))].slice(0, 2);
            const [first = '', second] = shares;
            const split =
              second === undefined
                ? [{ version: first, weight: 100 }]
                : [
                    { version: first, weight: act.weight },
                    { version: second, weight: 100 - act.weight },
                  ];
            assert.ok(split.length <= MAX_SHARES);
            await operator.releases.set(tenant, NAME, reference || 'live', { shares: split, by: 'key_1' });
          } else if (act.kind === 'unalias') await operator.releases.remove(tenant, NAME, reference || 'live');
          else if (act.kind === 'removeVersion') await operator.removals.removeVersion(tenant, NAME, version, false);
          else if (act.kind === 'removeFunction') await operator.removals.removeFunction(tenant, NAME, false);
          else await operator.releases.rollback(tenant, NAME, reference || 'live', { by: 'key_1' });
        }
      }),
      { seed: 1, numRuns: process.env.PIE_TEST_ALL ? 300 : 10 },
    );
  });

  test('never run a version that was replaced before the request', async () => {
    const [operator, ...gateways] = await openSchedulers(3);
    assert.ok(operator);
    const versions = [await deploy(operator, 'default', 0)];
    let begun = 0;
    let isDone = false;
    const changing = async () => {
      for (let content = 1; content <= 40; content++) {
        begun = content;
        versions.push(versionOf({ name: NAME }, await operator.blobs.put('default', new Uint8Array([1, content]))));
        await deploy(operator, 'default', content);
        deployed = content;
      }
    };
    let deployed = 0;
    const invoking = async (gateway: Scheduler) => {
      while (!isDone) {
        const from = deployed;
        const ran = versions.indexOf((await invoke(wired(gateway), 'acme')) ?? '');
        assert.ok(ran >= from && ran <= begun, `${ran} of ${from} to ${begun}`);
      }
    };
    const change = changing().finally(() => {
      isDone = true;
    });
    await Promise.all([change, ...gateways.flatMap((gateway) => [invoking(gateway), invoking(gateway)])]);
  });

  test('take one Redis command per invocation once they are cached', async () => {
    const [gateway] = await openSchedulers(1);
    assert.ok(gateway);
    await deploy(gateway, 'default', 0);
    const { redis: connection } = gateway.store;
    const submitOnce = () =>
      gateway.resolutions.submit('acme', NAME, '', {
        check: () => undefined,
        submit: ({ version, basis }) => gateway.submit(submissionOf('acme', version, basis)),
      });
    await submitOnce();
    await submitOnce();
    await connection.config('RESETSTAT');
    for (let i = 0; i < 10; i++) await submitOnce();
    const calls = /cmdstat_evalsha:calls=(\d+)/.exec(await connection.info('commandstats'))?.[1];
    assert.equal(calls, '10');
  });

  test('of a stale basis are refused by the script, which stores nothing', async () => {
    for (const byVersion of [false, true]) {
      const [gateway] = await openSchedulers(1);
      assert.ok(gateway);
      const lent = await deploy(gateway, 'default', 0);
      const reference = byVersion ? lent : '';
      const found: Resolved[] = [];
      const submit = async (resolved: Resolved) => void found.push(resolved);
      for (let i = 0; i < 2; i++) {
        await gateway.resolutions.submit('acme', NAME, reference, { check: () => undefined, submit });
      }
      const [fresh, cached] = found;
      assert.ok(fresh && cached?.basis && fresh.basis === undefined);
      // A function of the tenant's own takes the place of the platform's, also when its content is the same.
      const own = await deploy(gateway, 'acme', byVersion ? 0 : 1);
      const stale = submissionOf('acme', cached.version, cached.basis);
      await assert.rejects(
        gateway.submit(stale),
        (error) => error instanceof StoreError && error.code === 'stale-resolution',
      );
      assert.equal(await gateway.invocations.get(stale.id), null);
      assert.equal(await invoke(wired(gateway), 'acme', reference), own);
      assert.ok(
        (await gateway.submit(submissionOf('acme', fresh.version, undefined))).created,
        'the version is still deployed',
      );
    }
  });

  test('ask Redis for the version before they refuse a request because of a cached one', async () => {
    const [operator, gateway] = await openSchedulers(2);
    assert.ok(operator && gateway);
    const old = await deploy(operator, 'default', 0);
    await invoke(wired(gateway), 'default');
    const checked: string[] = [];
    const submitUnless = (refused: string) =>
      gateway.resolutions.submit('default', NAME, '', {
        check: ({ version }) => {
          checked.push(version);
          if (version === refused) throw new RangeError(version);
        },
        submit: async ({ version, basis }) => (await gateway.submit(submissionOf('default', version, basis))).created,
      });
    await assert.rejects(submitUnless(old), RangeError);
    assert.deepEqual(checked.splice(0), [old]);
    const replaced = await deploy(operator, 'default', 1);
    assert.equal(await submitUnless(old), true);
    assert.deepEqual(checked.splice(0), [old, replaced]);
  });
});
