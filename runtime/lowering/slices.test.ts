import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { DEFAULT_SLICE_POLICY, SliceQueue } from './slices.ts';

const { sliceMs, burstMs, spinnerShare } = DEFAULT_SLICE_POLICY;

/** Lets `tasks` compute without end for `durationMs`, and returns the time of each in ms. */
function simulate(
  queue: SliceQueue<{ id: number }>,
  tasks: readonly { id: number }[],
  durationMs: number,
  busy: boolean,
  fromMs = 0,
) {
  const got = new Map(tasks.map((task) => [task.id, 0]));
  let now = fromMs;
  while (now < fromMs + durationMs) {
    const decision = queue.next(now, busy);
    if (decision.kind === 'idle') break;
    if (decision.kind === 'wait') {
      now = Math.min(decision.untilMs, fromMs + durationMs);
      continue;
    }
    now += sliceMs;
    got.set(decision.task.id, (got.get(decision.task.id) ?? 0) + sliceMs);
    queue.add(decision.task, sliceMs, now);
  }
  return got;
}

const sum = (values: Iterable<number>): number => [...values].reduce((a, b) => a + b, 0);

describe('slices', () => {
  it('give all spinners (tasks without credit) together a small share of the thread while the device is busy', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), (count) => {
        const queue = new SliceQueue<{ id: number }>();
        const tasks = Array.from({ length: count }, (_, id) => ({ id }));
        for (const task of tasks) queue.add(task, sliceMs, 0);
        // The tasks use up their first credit, and then compete as spinners.
        simulate(queue, tasks, count * burstMs * 2, true);
        const from = count * burstMs * 4;
        const durationMs = 20_000;
        const got = sum(simulate(queue, tasks, durationMs, true, from).values());
        assert.ok(got <= durationMs * spinnerShare * 1.1 + sliceMs, `${got} ms of ${durationMs}`);
        assert.ok(got >= durationMs * spinnerShare * 0.8, `${got} ms of ${durationMs}`);
      }),
      { seed: 11, numRuns: 20 },
    );
  });

  it('give spinners all of the time while the device is idle', () => {
    const queue = new SliceQueue<{ id: number }>();
    const tasks = [{ id: 0 }, { id: 1 }];
    for (const task of tasks) queue.add(task, sliceMs, 0);
    const got = simulate(queue, tasks, 2000, false);
    assert.equal(sum(got.values()), 2000);
  });

  it('give all tasks the same time, up to a difference of two slices', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 20 }), fc.boolean(), (count, busy) => {
        const queue = new SliceQueue<{ id: number }>();
        const tasks = Array.from({ length: count }, (_, id) => ({ id }));
        for (const task of tasks) queue.add(task, sliceMs, 0);
        const got = [...simulate(queue, tasks, 10_000, busy).values()];
        assert.ok(Math.max(...got) - Math.min(...got) <= 2 * sliceMs, got.join());
      }),
      { seed: 12, numRuns: 20 },
    );
  });

  it('let a task with credit run before a spinner', () => {
    const queue = new SliceQueue<{ id: number }>();
    const spinner = { id: 0 };
    // The spinner uses up its credit.
    for (let i = 0; i < burstMs * 2; i++) {
      queue.add(spinner, sliceMs, i);
      // Takes the task out again, as if it computed.
      queue.next(i, false);
    }
    queue.add(spinner, sliceMs, 200);
    const bursting = { id: 1 };
    queue.add(bursting, sliceMs, 200);
    assert.deepEqual(queue.next(200, true), { kind: 'run', task: bursting, spinner: false });
    assert.equal(queue.next(200, true).kind, 'wait');
  });

  it('forget a removed task', () => {
    const queue = new SliceQueue<{ id: number }>();
    const task = { id: 0 };
    queue.add(task, sliceMs, 0);
    queue.remove(task);
    assert.deepEqual(queue.next(0, false), { kind: 'idle' });
  });
});
