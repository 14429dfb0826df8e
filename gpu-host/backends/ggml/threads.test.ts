import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ThreadCount } from './threads.ts';

/** Notes windows of 100 ms in which each thread has a core for `shareOf` of the time. */
function steps(threads: ThreadCount, windows: number, shareOf: (count: number) => number): number[] {
  return Array.from({ length: windows }, () => {
    const { count } = threads;
    threads.note(100, 100 * count * shareOf(count));
    return count;
  });
}

test('threads that have their cores stay as many as they are', () => {
  assert.deepEqual(new Set(steps(new ThreadCount(4), 50, () => 0.97)), new Set([4]));
});

test('threads without cores become fewer, and come back when the cores are free again', () => {
  const threads = new ThreadCount(4);
  // Other programs keep two of four cores busy.
  const crowded = (count: number) => Math.min(1, 2 / count);
  const counts = steps(threads, 200, crowded);
  assert.deepEqual(counts.slice(0, 3), [4, 3, 2]);
  const tried = counts.slice(3).filter((count) => count > 2).length;
  assert.ok(tried > 0 && tried < 10, `one more thread was tried ${tried} times`);
  assert.equal(steps(threads, 400, () => 0.95).at(-1), 4);
});

test('one thread stays, however little of a core it has', () => {
  assert.equal(steps(new ThreadCount(2), 20, () => 0.1).at(-1), 1);
});
