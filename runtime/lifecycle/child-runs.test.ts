import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { StoreQueues } from '../host/store-queues.ts';
import { ChildRuns, type ChildRunsOptions } from './child-runs.ts';
import { Family } from './family.ts';

const JOB: InvocationJob = {
  ...{ id: 'child', tenant: 't', function: 'f', version: 'v', input: '' },
  ...{ arrival: 1, submittedAt: 0, deadlineMs: 1, limits: DEFAULT_LIMITS },
};

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

  function open(options: Partial<ChildRunsOptions> = {}): ChildRuns {
    const { invocations, inbox, events } = scheduler;
    const jobs = {
      functionOf: () => Promise.resolve(null),
      texts: { check: () => assert.fail('no input is expected') },
      limits: DEFAULT_LIMITS,
    };
    return new ChildRuns({
      lines: new StoreQueues(),
      ...{ invocations, inbox, events, runtimeId: 'r', jobs },
      run: () => Promise.resolve(null),
      ...options,
    });
  }

  it('of one tenant leave places to other tenants', () => {
    const runs = open();
    let greedy = 0;
    while (runs.enter('greedy') === null) greedy++;
    assert.equal(greedy, 512);
    for (let i = 0; i < 256; i++) assert.equal(runs.enter('other'), null);
    assert.equal(runs.enter('other')?.tag, 'unavailable');
    runs.leave('other');
    assert.equal(runs.enter('other'), null);
  });

  it('that the platform fails to begin are refused as internal', async () => {
    const errors: unknown[] = [];
    const fault = new Error('the store refused the call');
    const runs = open({ run: () => Promise.reject(fault), onError: (error) => errors.push(error) });
    const job = JOB;
    const origin = { epoch: 1, depth: 1, family: new Family(job), token: 'token' };
    const { begun, ended } = runs.start(runs.create(job), job, origin);
    assert.equal((await begun)?.tag, 'internal');
    assert.deepEqual(errors, [fault]);
    await ended;
  });

  it('learn that their inbox is closed, although the store was away', async () => {
    let calls = 0;
    const inbox = {
      close: async () => {
        if (++calls === 1) throw new StoreError('store-unavailable', 'away');
      },
    };
    await open({ inbox: inbox as unknown as ChildRunsOptions['inbox'] })
      .create(JOB)
      .closeInbox();
    assert.equal(calls, 2);
  });
});
