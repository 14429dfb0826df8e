import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Worker } from 'bullmq';
import fc from 'fast-check';
import { MAX_ATTEMPTS } from '../invocations/types.ts';
import { INVOCATION_QUEUE } from '../keys.ts';
import { offer, openTestScheduler, registerRuntime, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

const RUNTIMES = ['r1', 'r2'] as const;

test('under random commands of two runtimes and a client, an invocation has one log without gaps, and one end', async () => {
  const scheduler = openTestScheduler(redis);
  const { invocations, active, queue, admission } = scheduler;
  const lease = await offer(scheduler, { slots: 4 });
  for (const name of RUNTIMES) await registerRuntime(scheduler.store, name);
  const workers = RUNTIMES.map((name) => {
    const connection = redis.connect();
    const options = { connection, prefix: scheduler.store.keys.bull, name, autorun: false, lockDuration: 60_000 };
    const worker = new Worker(INVOCATION_QUEUE, null, options);
    worker.on('error', () => undefined);
    return { worker, connection };
  });
  const command = fc.oneof(
    { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('fetch', 'begin', 'append', 'append'), by: fc.nat(1) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('lost', 'giveBack', 'requeue'), by: fc.nat(1) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('finish', 'over', 'cancel', 'fail'), by: fc.nat(1) }) },
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(command, { minLength: 3, maxLength: 30, size: 'max' }),
      fc.boolean(),
      async (commands, restartable) => {
        const { id } = await scheduler.submit(submission({ restartable }));
        const attempts = RUNTIMES.map(() => ({ epoch: -1, seq: 0 }));
        const epochs: number[] = [];
        const appendedData: string[] = [];
        for (const [step, { kind, by }] of commands.entries()) {
          const runtimeId = RUNTIMES[by] ?? 'r1';
          const attempt = attempts[by] ?? { epoch: -1, seq: 0 };
          if (kind === 'fetch') await workers[by]?.worker.getNextJob('token', { block: false });
          else if (kind === 'begin') {
            const holder = await scheduler.control.holder(id);
            const begun = await invocations.beginAttempt(id, runtimeId);
            if ('refused' in begun) continue;
            assert.equal(holder, runtimeId, 'only the runtime that holds the job begins it');
            epochs.push(begun.epoch);
            attempts[by] = { epoch: begun.epoch, seq: begun.nextSeq };
          } else if (kind === 'append') {
            if (attempt.epoch < 0) continue;
            const data = `"${step}"`;
            const outcome = await invocations.append(id, attempt.epoch, attempt.seq, [{ event: 'message', data }]);
            assert.equal(
              outcome === 'ok',
              attempt.epoch === (await invocations.get(id))?.epoch && (await invocations.get(id))?.status === 'running',
            );
            if (outcome !== 'ok') continue;
            appendedData.push(data);
            attempt.seq += 1;
          } else if (kind === 'finish') {
            if (attempt.epoch >= 0)
              await invocations.finish(id, attempt.epoch, attempt.seq, { event: 'result', data: '{}' }, null);
          } else if (kind === 'requeue') {
            if (attempt.epoch < 0) continue;
            const outcome = await invocations.requeue(id, attempt.epoch, attempt.seq, 'room for others', null);
            if (outcome === 'requeued')
              assert.equal(await invocations.requeue(id, attempt.epoch, attempt.seq, '', null), outcome, 'sent twice');
          } else if (kind === 'cancel') await scheduler.cancel(id, 'enough');
          else if (kind === 'fail') await invocations.fail(id, 'internal', 'x', runtimeId);
          else if (kind === 'lost' || kind === 'giveBack' || kind === 'over') await active[kind](id, runtimeId);
          const now = await invocations.get(id);
          // There is room, so the invocation stays admitted until it ends, even after a lost attempt.
          const open = now?.status === 'queued' || now?.status === 'running';
          assert.equal((await admission.capacity()).usedSlots, open ? 1 : 0);
        }
        await invocations.fail(id, 'internal', 'the end');
        for (const runtimeId of RUNTIMES) await active.over(id, runtimeId);
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
          appendedData,
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
  assert.deepEqual(await scheduler.store.redis.keys(`${scheduler.store.keys.jobs}:inv-*`), []);
  assert.deepEqual(await admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
  await lease.release();
  await scheduler.close();
});
