import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { NO_GRANTS } from '#scheduler/functions/grants.ts';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import { resultData } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { beginAttempt, openTestScheduler, submission } from '#scheduler/testing/fixture.ts';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { StoreQueues } from '../host/services/ask.ts';
import { Account } from '../workers/account.ts';
import { ChildRuns, type ChildRunsOptions, Children } from './children.ts';
import { Family } from './family.ts';

const JOB: InvocationJob = {
  id: 'child',
  tenant: 't',
  function: 'f',
  version: 'v',
  input: '',
  arrival: 1,
  submittedAt: 0,
  deadlineMs: 1,
  limits: DEFAULT_LIMITS,
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
      log: silentLog,
      queues: new StoreQueues(),
      invocations,
      inbox,
      events,
      runtimeId: 'r',
      jobs,
      run: () => Promise.resolve(null),
      ...options,
    });
  }

  it('the children of one tenant take at most half of the places, and another tenant then still gets a quarter', () => {
    const runs = open();
    let greedyCount = 0;
    while (runs.enter('greedy') === null) greedyCount++;
    // The runtime has 1024 places; `Shares` divides them.
    assert.equal(greedyCount, 512);
    for (let i = 0; i < 256; i++) assert.equal(runs.enter('other'), null);
    assert.equal(runs.enter('other')?.tag, 'unavailable');
    runs.leave('other');
    assert.equal(runs.enter('other'), null);
  });

  it('a launch looks up its function only for a valid reference and input, in the queue of its tenant', async () => {
    const lookedUpVersions: (string | undefined)[] = [];
    const functionOf = async (_parent: unknown, _name: string, version?: string) => {
      lookedUpVersions.push(version?.slice(0, 20));
      return null;
    };
    const queues = new StoreQueues();
    const jobs = { functionOf, texts: { check: () => assert.fail('no input is expected') }, limits: DEFAULT_LIMITS };
    const children = new Children(open({ jobs, queues }), {
      job: JOB,
      epoch: 1,
      depth: 0,
      family: new Family(JOB),
      grants: { ...NO_GRANTS, launch: '*' },
      deadline: { at: 1, leftMs: 1 },
      takePlaces: () => undefined,
      texts: { tenant: JOB.tenant, account: new Account({ charge: () => undefined, usedUp: () => false }) },
    });
    const refusal = async (reference: string, input = '{}') => {
      const outcome = await children.launch(reference, input);
      assert.ok(outcome.tag === 'err' && outcome.val.val.length < 1000);
      return outcome.val.tag;
    };
    for (const version of ['x'.repeat(1e6), 'f'.repeat(1e6), 'Live', 'a b', '012'])
      assert.equal(await refusal(`f@${version}`), 'not-found');
    assert.equal(await refusal('f', ' '.repeat((256 << 10) + 1)), 'invalid-argument');
    assert.deepEqual(lookedUpVersions, []);

    const { promise, resolve } = Promise.withResolvers<void>();
    // The store takes 16 calls of a tenant at once, so the searches below wait.
    const storeCalls = Array.from({ length: 16 }, () => queues.during(JOB.tenant, 0, () => promise));
    const refusals = ['f', 'f@', 'f@live', 'f@v1.2', 'f@0123456789ab'].map((reference) => refusal(reference));
    await setImmediate();
    assert.deepEqual(lookedUpVersions, []);
    resolve();
    await Promise.all([...storeCalls, ...refusals]);
    assert.deepEqual(lookedUpVersions, [undefined, '', 'live', 'v1.2', '0123456789ab']);
  });

  it('a child is refused as `internal` when the platform fails to begin it', async () => {
    const log = new CollectedLog();
    const { errors } = log;
    const fault = new Error('the store refused the call');
    const runs = open({ run: () => Promise.reject(fault), log });
    const job = JOB;
    const origin = { epoch: 1, depth: 1, family: new Family(job), token: 'token' };
    const { begun, ended } = runs.start(runs.create(job), job, origin);
    assert.equal((await begun)?.tag, 'internal');
    assert.deepEqual(errors, [fault]);
    await ended;
  });

  it('a child keeps its stored result when the platform fails afterwards', async () => {
    const parent = submission();
    await scheduler.invocations.create(parent);
    const attempt = await beginAttempt(scheduler, parent.id, 'r');
    assert.ok('epoch' in attempt);
    const log = new CollectedLog();
    const { errors } = log;
    const fault = new Error('the platform failed after the end');
    const runs = open({
      run: async ({ job, begin }) => {
        const outcome = await begin();
        assert.ok('epoch' in outcome);
        const terminal = { event: 'result', data: resultData('{"text":"done"}', {}) } as const;
        assert.equal(await scheduler.invocations.finish(job.id, outcome.epoch, 1, terminal, null), 'ok');
        throw fault;
      },
      log,
    });
    const job = { ...JOB, tenant: parent.tenant, parent: parent.id };
    const origin = { epoch: attempt.epoch, depth: 1, family: new Family({ ...JOB, id: parent.id }), token: 'token' };
    const { begun, ended } = runs.start(runs.create(job), job, origin);
    assert.equal(await begun, null);
    assert.deepEqual(await ended, { tag: 'success', val: '{"text":"done"}' });
    assert.deepEqual(errors, [fault]);
  });

  it('the inbox of a child is closed by a second call when the store was away at the first', async () => {
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
