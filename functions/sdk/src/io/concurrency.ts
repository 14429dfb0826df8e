import { type Aborter, type AbortSignalLike, abortable, abortError, aborter, throwIfAborted } from '../abort.ts';
import { checkCount, InferletError } from '../errors.ts';
import { runtime, settle } from '../raw.ts';
import { MAX_SLEEP_MS, sleep } from './inferlet.ts';

/** An asynchronous task that passes the signal to `generate`, `fetch` and other calls, so that an abort of the signal ends the task early. */
export type Task<T> = (signal: AbortSignalLike) => Promise<T>;

/**
 * The result of `task`, if the task ends within `milliseconds`. Otherwise aborts the task's signal and throws `deadline-exceeded`.
 *
 * @example
 * const { text } = await withTimeout(2000, (signal) => ctx.generate({ signal }).collect());
 */
export async function withTimeout<T>(
  milliseconds: number,
  task: Task<T>,
  options: { readonly signal?: AbortSignalLike } = {},
): Promise<T> {
  if (!(milliseconds >= 0)) {
    const fault = `The time limit must be a number of milliseconds, 0 or more, not ${milliseconds}.`;
    throw new InferletError('invalid-argument', fault);
  }
  throwIfAborted(options.signal);
  using own = aborter(options.signal);
  const timerAborter = aborter();
  const expiry = runtime.sleep(Math.min(Math.ceil(milliseconds), MAX_SLEEP_MS));
  const answer = (async () => {
    try {
      return await task(own.signal);
    } finally {
      // The result, such as a response, may still depend on the task's signal, so the timer must not abort the signal after the task.
      timerAborter.abort();
    }
  })();
  const abort = (reason: unknown) => {
    if (!timerAborter.signal.aborted) own.abort(reason);
  };
  const text = `It took longer than ${milliseconds} ms.`;
  // Read the timer only after the task has started: a task that ends at once then succeeds, even if the guest was suspended beyond the limit.
  // The host's timer fails only when the invocation itself is over: abort the task with that error.
  void settle(expiry, timerAborter.signal).then(() => abort(new InferletError('deadline-exceeded', text)), abort);
  try {
    return await abortable(answer, own.signal);
  } finally {
    timerAborter.abort();
    await ended([answer]);
  }
}

/**
 * The result of the first of `tasks` to succeed. Aborts the other tasks' signals, which ends their generations and releases their `using`
 * contexts. When no task succeeds, throws the error of the first task that failed.
 *
 * @example
 * const drafts = await Promise.all([ctx.fork(), ctx.fork()]);
 * const { text } = await race(drafts.map((draft) => (signal) => draft.generate({ signal, stop: '.' }).collect()));
 */
export async function race<T>(
  tasks: readonly Task<T>[],
  options: { readonly signal?: AbortSignalLike } = {},
): Promise<T> {
  if (tasks.length === 0) throw new InferletError('invalid-argument', 'A race needs at least one task.');
  throwIfAborted(options.signal);
  const others = new Set<Aborter>();
  let winner: Aborter | undefined;
  let failure: { readonly cause: unknown } | undefined;
  const attempts = tasks.map(async (task) => {
    using own = aborter(options.signal);
    others.add(own);
    try {
      const result = await task(own.signal);
      winner ??= own;
      return result;
    } catch (error) {
      failure ??= { cause: error };
      throw error;
    }
  });
  try {
    const result = await abortable(Promise.any(attempts), options.signal);
    // The winner's result, such as a response, may still depend on the winner's signal.
    if (winner) others.delete(winner);
    return result;
  } catch (error) {
    if (options.signal?.aborted) throw abortError(options.signal);
    throw failure ? failure.cause : error;
  } finally {
    for (const other of others) other.abort(new InferletError('cancelled', 'Another task was faster.'));
    await ended(attempts);
  }
}

/**
 * Runs `task` on each item, at most `concurrency` at once (8 by default), and returns the results in the order of the items. After
 * the first failure no more tasks start, the running ones are aborted, and the failure is thrown.
 *
 * @example
 * const summaries = await map(chapters, (chapter, signal) => summarize(chapter, signal), { concurrency: 4 });
 */
export async function map<T, R>(
  items: Iterable<T>,
  task: (item: T, signal: AbortSignalLike, index: number) => Promise<R>,
  options: { readonly concurrency?: number; readonly signal?: AbortSignalLike } = {},
): Promise<R[]> {
  const { concurrency = 8, signal } = options;
  checkCount('concurrency', concurrency);
  throwIfAborted(signal);
  using tasksAborter = aborter(signal);
  const list = [...items];
  const entries = list.entries();
  const results: R[] = [];
  const worker = async () => {
    // Workers share the iterator.
    for (const [index, item] of entries) {
      throwIfAborted(tasksAborter.signal);
      results[index] = await task(item, tasksAborter.signal, index);
    }
  };
  const workers = Array.from({ length: Math.min(concurrency, list.length) }, worker);
  try {
    await abortable(Promise.all(workers), signal);
  } catch (error) {
    tasksAborter.abort(new InferletError('cancelled', 'Another task failed.'));
    await ended(workers);
    throw error;
  }
  return results;
}

/** Time that aborted tasks get to release their resources before the caller stops waiting for them. */
const GRACE_MS = 100;

/** Waits until all tasks have ended, or the grace period is over. */
async function ended(tasks: readonly Promise<unknown>[]): Promise<void> {
  const all = Promise.allSettled(tasks);
  // `sleep` has no signal, so do not set a timer for tasks that end within the next turns of the promise queue.
  let open = true;
  void all.then(() => {
    open = false;
  });
  for (let turn = 0; turn < GRACE_TURNS && open; turn++) await undefined;
  if (open) await Promise.race([all, sleep(GRACE_MS).catch(() => undefined)]);
}

/** Turns of the promise queue that a task gets to end once its awaited call has failed. */
const GRACE_TURNS = 64;
