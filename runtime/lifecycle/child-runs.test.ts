import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { StoreQueues } from '../host/store-queues.ts';
import { ChildRuns } from './child-runs.ts';

describe('the children of a runtime', () => {
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

  it('of one tenant leave places to other tenants', () => {
    const { invocations, inbox, events } = scheduler;
    const jobs = {
      functionOf: () => Promise.resolve(null),
      texts: { check: () => assert.fail('no input is expected') },
      limits: DEFAULT_LIMITS,
    };
    const runs = new ChildRuns({
      lines: new StoreQueues(),
      ...{ invocations, inbox, events, runtimeId: 'r', jobs },
      run: () => Promise.resolve(null),
    });
    let greedy = 0;
    while (runs.enter('greedy') === null) greedy++;
    assert.equal(greedy, 512);
    for (let i = 0; i < 256; i++) assert.equal(runs.enter('other'), null);
    assert.equal(runs.enter('other')?.tag, 'unavailable');
    runs.leave('other');
    assert.equal(runs.enter('other'), null);
  });
});
