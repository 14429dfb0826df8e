import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { newInvocationId } from '../invocations/submission.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type Placement, versionOf } from './functions.ts';
import type { FunctionVersion } from './types.ts';

const TENANT = 'default';

describe('the audit log of removals', () => {
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

  async function deploy(name: string, placement?: Placement): Promise<FunctionVersion> {
    const componentHash = await scheduler.blobs.put(TENANT, new Uint8Array([1, 2, 3]));
    const manifest = { name };
    const version = versionOf(manifest, componentHash);
    const stored = {
      name,
      version,
      tenant: TENANT,
      manifest,
      componentHash,
      componentBytes: 3,
      createdAt: 1_790_000_000_000,
    };
    const outcome = await scheduler.functions.put(stored, placement);
    assert.ok(outcome.ok, JSON.stringify(outcome));
    return stored;
  }

  async function submitFor({ name, version }: FunctionVersion): Promise<void> {
    const id = newInvocationId();
    await scheduler.submit(
      submission({ id, tenant: TENANT, function: name, version, functionOwner: TENANT, deadlineMs: 60_000 }),
    );
  }

  test('the audit log has a removal once and its repetition with `now` once, although a reply was lost', async (t) => {
    const { store, removals, audit } = scheduler;
    const whole = await deploy('recorded');
    const part = await deploy('parted', { alias: null });
    for (const version of [whole, part]) await submitFor(version);
    const removeVersion = (now: boolean) =>
      removals.removeVersion(TENANT, 'parted', part.version, now, { actor: 'key_1' });
    const removeFunction = (now: boolean) => removals.removeFunction(TENANT, 'recorded', now, { actor: 'key_1' });
    for (const remove of [removeVersion, removeFunction]) {
      const script = store.script.bind(store);
      const sent = t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
        await script(...call);
        throw new StoreError('store-unavailable', 'Redis went away before it answered.');
      });
      await assert.rejects(remove(false), { code: 'store-unavailable' });
      sent.mock.restore();
      for (const now of [false, true, true]) await remove(now);
    }
    const acts = (await audit.read({ tenant: TENANT, limit: 100 })).filter(({ action }) => action.endsWith('.remove'));
    assert.deepEqual(
      acts.map(({ actor, action, target, details }) => [actor, action, target, details.now]),
      [
        ['key_1', 'function.remove', 'recorded', true],
        ['key_1', 'function.remove', 'recorded', false],
        ['key_1', 'version.remove', `parted@${part.version}`, true],
        ['key_1', 'version.remove', `parted@${part.version}`, false],
      ],
    );
  });
});
