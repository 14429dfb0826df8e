import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { StoreError } from './errors.ts';

const skip = spawnSync('prlimit', ['--version']).status !== 0 && 'the program prlimit is missing';

describe('Redis with a full disk', { skip }, () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true, limitedFiles: true });
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const event = { event: 'message', data: '{"text":"x"}' } as const;
  const begin = async () => {
    const { id } = submission();
    await scheduler.invocations.create(submission({ id }));
    const begun = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in begun);
    return { id, epoch: begun.epoch };
  };
  const refusals: StoreError[] = [];
  /** True when the store refuses a call for now; any other error fails the test. */
  const isRefused = async (call: () => Promise<unknown>): Promise<boolean> => {
    try {
      await call();
      return false;
    } catch (error) {
      assert.ok(error instanceof StoreError && error.code === 'store-unavailable', String(error));
      refusals.push(error);
      return true;
    }
  };

  test('refuses writes, answers reads, and accepts writes again once the disk has room', async () => {
    const { invocations } = scheduler;
    const attempt = await begin();
    assert.equal(await invocations.append(attempt.id, attempt.epoch, 1, [event]), 'ok');
    redis.limitFiles(0);
    try {
      // Redis learns of the full disk when it writes a change that it has acknowledged.
      await eventually(() => isRefused(() => invocations.create(submission())), 'a new invocation is refused');
      assert.ok(await isRefused(() => invocations.append(attempt.id, attempt.epoch, 2, [event])));
      assert.equal((await invocations.get(attempt.id))?.status, 'running');
    } finally {
      redis.limitFiles('unlimited');
    }
    for (const { diskFault, message } of refusals) {
      assert.equal(diskFault, 'File too large');
      assert.match(message, /cannot write to its disk \(File too large\).*Free space/);
    }
    await eventually(
      async () => !(await isRefused(() => invocations.create(submission()))),
      'a new invocation is accepted again',
    );
    assert.equal(await invocations.append(attempt.id, attempt.epoch, 2, [event]), 'ok');
    const result = { event: 'result', data: '{}' } as const;
    assert.equal(await invocations.finish(attempt.id, attempt.epoch, 3, result, null), 'ok');

    await redis.restart();
    await eventually(async () => !(await isRefused(() => invocations.get(attempt.id))), 'the restarted server answers');
    assert.equal((await invocations.get(attempt.id))?.status, 'succeeded');
  });
});
