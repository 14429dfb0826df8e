import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { CrashGuard, type GuardedOutcome } from './crash-guard.ts';
import { Store } from './store.ts';

describe('CrashGuard', () => {
  let redis: TestRedis;
  let store: Store;
  before(async () => {
    redis = await TestRedis.start();
    store = new Store(redis.connect());
  });
  after(async () => {
    store.redis.disconnect();
    await redis.stop();
  });

  /** A process that dies while it runs some jobs: its guard never hears of their end. */
  const dieDuring = async (...jobs: string[]): Promise<void> => {
    const guard = new CrashGuard(store, 'queue', () => undefined);
    await Promise.all(
      jobs.map((job) => new Promise<void>((begun) => void guard.run(job, () => new Promise(() => begun())))),
    );
  };
  const kindOf = async (run: Promise<GuardedOutcome<unknown>>) => (await run).kind;
  const outcomeOf = (job: string) =>
    kindOf(new CrashGuard(store, 'queue', () => undefined).run(job, async () => undefined));

  it('refuses a job after three deaths of its process, and not one that ran beside it', async () => {
    await dieDuring('poison', 'neighbour');
    await dieDuring('poison', 'neighbour');
    assert.equal(await outcomeOf('neighbour'), 'ended');
    await dieDuring('poison');
    assert.equal(await outcomeOf('poison'), 'refused');
    assert.equal(await outcomeOf('neighbour'), 'ended');
    const guard = new CrashGuard(store, 'queue', () => undefined);
    await guard.forget('poison');
    assert.equal(await outcomeOf('poison'), 'ended');
  });

  it('runs a job alone after two deaths: it waits for those that run, and puts off those that come', async () => {
    await dieDuring('suspect');
    await dieDuring('suspect');
    const events: string[] = [];
    const guard = new CrashGuard(store, 'queue', (job) => events.push(`${job} alone`));
    const neighbour = Promise.withResolvers<void>();
    const neighbourBegun = Promise.withResolvers<void>();
    const first = guard.run('neighbour', () => {
      neighbourBegun.resolve();
      return neighbour.promise.then(() => void events.push('neighbour ends'));
    });
    await neighbourBegun.promise;
    const suspectEnds = Promise.withResolvers<void>();
    const suspectBegun = Promise.withResolvers<void>();
    const alone = guard.run('suspect', () => {
      events.push('suspect begins');
      suspectBegun.resolve();
      return suspectEnds.promise;
    });
    await eventually(
      async () => (await kindOf(guard.run('other', async () => undefined))) === 'later',
      'the suspect waits',
    );
    neighbour.resolve();
    await suspectBegun.promise;
    assert.equal(await kindOf(guard.run('other', async () => assert.fail('ran beside'))), 'later');
    suspectEnds.resolve();
    assert.deepEqual(await Promise.all([first, alone].map(kindOf)), ['ended', 'ended']);
    assert.deepEqual(events, ['neighbour ends', 'suspect alone', 'suspect begins']);
    assert.deepEqual(await guard.run('other', async () => 'its result'), { kind: 'ended', result: 'its result' });
    assert.equal(await outcomeOf('suspect'), 'ended', 'a run that ends forgets the deaths before it');
  });

  it('does not count a run that fails while its process lives', async () => {
    const guard = new CrashGuard(store, 'queue', () => assert.fail('alone'));
    for (let i = 0; i < 5; i++)
      await assert.rejects(
        guard.run('failing', () => Promise.reject(new Error('no'))),
        /no/,
      );
    assert.equal(await store.redis.exists(store.keys.unendedRuns('queue', 'failing')), 0);
  });
});
