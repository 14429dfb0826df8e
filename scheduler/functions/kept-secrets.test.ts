import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { openMasterKeys } from '../secrets/master-keys.ts';
import { type Secret, Secrets } from '../secrets/secrets.ts';
import type { Store } from '../store/store.ts';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Functions, versionOf } from './functions.ts';
import type { FunctionVersion } from './types.ts';

const TENANT = 'acme';
const HOUR_MS = 3_600_000;

interface Change {
  readonly make: (scheduler: Scheduler, version: FunctionVersion) => Promise<unknown>;
  /** Alias that serves the version until the change; by default none does. */
  readonly alias?: string;
  /** True when the version is already removed before the release begins. */
  readonly isOfRemoved?: boolean;
}

/** Changes of a version by name. Each has a test, which makes the change between two store calls of `Secrets.release`. */
const CHANGES: Readonly<Record<string, Change>> = {
  'the removal of the version': {
    make: async ({ removals }, { name, version }) => removals.removeVersion(TENANT, name, version),
  },
  'the removal of its function': {
    make: async ({ removals }, { name }) => removals.removeFunction(TENANT, name),
  },
  'a second deploy of the removed version': {
    make: async ({ functions }, version) => functions.put(version, { alias: null }),
    isOfRemoved: true,
  },
  'the removal of its alias and then of the version': {
    make: async ({ releases, removals }, { name, version }) => {
      await releases.remove(TENANT, name, 'canary');
      await removals.removeVersion(TENANT, name, version);
    },
    alias: 'canary',
  },
};

describe('Secrets.release keeps the secret values of a version that may still run', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now = Date.UTC(2027, 0, 1);
  const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
  const masterKeys = openMasterKeys('/nowhere', { create: false, environment });
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis, { masterKeys, clock: () => now });
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  /** A proxy of the scheduler's store. It awaits `before` ahead of each call of the store; calls are numbered from 0. */
  function watchedStore(before: (call: number) => Promise<void>): { store: Store; calls: () => number } {
    const { store } = scheduler;
    let calls = 0;
    const handler: ProxyHandler<Store> = {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== 'function') return member;
        if (name !== 'call' && name !== 'script') return member.bind(target);
        return async (...args: unknown[]) => {
          await before(calls++);
          return member.apply(target, args);
        };
      },
    };
    return { store: new Proxy(store, handler), calls: () => calls };
  }

  let content = 0;
  async function deploy(name: string, secrets: Record<string, number> | undefined, alias: string | null) {
    const componentHash = await scheduler.blobs.put(TENANT, new Uint8Array([1, content++]));
    const manifest = { name };
    const version = versionOf(manifest, componentHash, secrets);
    const stored = { name, version, tenant: TENANT, manifest, componentHash, componentBytes: 2, createdAt: now };
    const full: FunctionVersion = secrets === undefined ? stored : { ...stored, secrets };
    assert.ok((await scheduler.functions.put(full, { alias })).ok);
    return full;
  }

  /**
   * Runs `Secrets.release`, and makes the change right before call `at` of the store. Returns false when the release ended without such a call.
   */
  async function releaseWith(at: number, { make, alias, isOfRemoved }: Change): Promise<boolean> {
    const set = (value: string) => scheduler.secrets.set(TENANT, 'TOKEN', value, 'key_1') as Promise<Secret>;
    const { revision } = await set('first');
    const name = `f${content}`;
    const first = await deploy(name, { TOKEN: revision }, alias ?? null);
    await deploy(name, undefined, 'live');
    await scheduler.submit(
      submission({ tenant: TENANT, function: name, version: first.version, functionOwner: TENANT }),
    );
    await set('second');
    if (isOfRemoved) await scheduler.removals.removeVersion(TENANT, name, first.version);
    // Any pin (`Secrets.pin`) has ended by now, so only the version keeps the value of its secret.
    now += 2 * HOUR_MS;
    const { store, calls } = watchedStore(async (call) => {
      if (call === at) await make(scheduler, first);
    });
    await new Secrets(store, new Functions(store), masterKeys).release({ tenant: TENANT });
    const opened = await scheduler.secrets.open(TENANT, { TOKEN: revision });
    assert.deepEqual([...opened], [['TOKEN', 'first']], `after a change before call ${at}`);
    await scheduler.removals.removeFunction(TENANT, name, true);
    await assert.rejects(
      scheduler.secrets.open(TENANT, { TOKEN: revision }),
      /not stored/,
      'the value is released with the function',
    );
    return calls() > at;
  }

  for (const [name, change] of Object.entries(CHANGES)) {
    it(`when ${name} comes right before the first call of the release to the store, or any later one`, async () => {
      let at = 0;
      while (await releaseWith(at, change)) at++;
      assert.ok(at > 3, `the release makes only ${at} calls`);
    });
  }
});
