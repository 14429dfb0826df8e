import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Worker } from 'bullmq';
import fc from 'fast-check';
import { INVOCATION_QUEUE } from '../keys.ts';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MAX_ATTEMPTS } from './active-jobs.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

const RUNTIMES = ['r1', 'r2'] as const;

test('whatever two runtimes, a canceller and the platform do in whatever order: one log without gaps, one end, nobody speaks out of turn', async () => {
  const scheduler = openTestScheduler(redis);
  const { invocations, active, queue } = scheduler;
  const workers = RUNTIMES.map((name) => {
    const connection = redis.connect();
    const options = { connection, prefix: scheduler.store.keys.bull, name, autorun: false, lockDuration: 60_000 };
    const worker = new Worker(INVOCATION_QUEUE, null, options);
    worker.on('error', () => undefined);
    return { worker, connection };
  });
  const command = fc.oneof(
    { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('fetch', 'begin', 'append', 'append'), by: fc.nat(1) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('lost', 'giveBack'), by: fc.nat(1) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('finish', 'over', 'cancel', 'fail'), by: fc.nat(1) }) },
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(command, { minLength: 3, maxLength: 30 }),
      fc.boolean(),
      async (commands, restartable) => {
        const { id } = await scheduler.submit(submission({ restartable }));
        const attempts = RUNTIMES.map(() => ({ epoch: -1, seq: 0 }));
        const epochs: number[] = [];
        const said: string[] = [];
        for (const [step, { kind, by }] of commands.entries()) {
          const runtimeId = RUNTIMES[by] ?? 'r1';
          const mine = attempts[by] ?? { epoch: -1, seq: 0 };
          if (kind === 'fetch') await workers[by]?.worker.getNextJob('token', { block: false });
          else if (kind === 'begin') {
            // Only whoever holds the job begins.
            if ((await active.holder(id)) !== runtimeId) continue;
            const begun = await invocations.beginAttempt(id, runtimeId);
            if ('refused' in begun) continue;
            epochs.push(begun.epoch);
            attempts[by] = { epoch: begun.epoch, seq: begun.nextSeq };
          } else if (kind === 'append') {
            if (mine.epoch < 0) continue;
            const data = `"${step}"`;
            const outcome = await invocations.append(id, mine.epoch, mine.seq, [{ event: 'message', data }]);
            assert.equal(
              outcome === 'ok',
              mine.epoch === (await invocations.get(id))?.epoch && (await invocations.get(id))?.status === 'running',
            );
            if (outcome !== 'ok') continue;
            said.push(data);
            mine.seq += 1;
          } else if (kind === 'finish') {
            if (mine.epoch >= 0)
              await invocations.finish(id, mine.epoch, mine.seq, { event: 'result', data: '{}' }, null);
          } else if (kind === 'cancel') await scheduler.cancel(id, 'enough');
          else if (kind === 'fail') await invocations.fail(id, 'internal', 'x', runtimeId);
          else if (kind === 'lost' || kind === 'giveBack' || kind === 'over') await active[kind](id, runtimeId);
          const now = await invocations.get(id);
          const line = scheduler.store.keys.waiting(now?.tenant ?? '');
          // Counted as waiting exactly as long as it waits, back in line after a lost attempt too.
          assert.equal((await scheduler.store.redis.zscore(line, id)) !== null, now?.status === 'queued');
        }
        await invocations.fail(id, 'internal', 'the end');
        for (const runtimeId of RUNTIMES) await active.over(id, runtimeId);
        await queue.remove(id);
        const events = await scheduler.events.read(id, 0);
        const record = await invocations.get(id);
        assert.deepEqual(
          events.map(({ seq }) => seq),
          events.map((_, i) => i + 1),
        );
        const terminal = events.filter(({ event }) => event === 'result' || event === 'error');
        assert.deepEqual(terminal, events.slice(-1));
        assert.deepEqual(
          events.filter(({ event }) => event === 'message').map(({ data }) => data),
          said,
        );
        assert.deepEqual(
          epochs,
          [...new Set(epochs)].toSorted((a, b) => a - b),
        );
        assert.ok(epochs.length <= (restartable ? MAX_ATTEMPTS : 1));
        assert.equal(record?.seq, events.length);
        assert.equal(record?.status === 'succeeded', terminal[0]?.event === 'result');
        assert.deepEqual(await queue.depth(), { waiting: 0, active: 0 });
      },
    ),
    { seed: 20261107, numRuns: 150 },
  );
  for (const { worker, connection } of workers) {
    await worker.close(true);
    connection.disconnect();
  }
  assert.equal(await scheduler.store.redis.zcard(scheduler.store.keys.deadlines), 0);
  await scheduler.close();
});
