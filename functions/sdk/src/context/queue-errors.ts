import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { InferletError } from '../errors.ts';
import { type Queue, settle } from '../raw.ts';

/**
 * The value of a call on a queue. If the call fails, this also takes the queue's error, so that no later call reports it again, and calls `failed`.
 * `failed` gets undefined, unless an earlier call without a result of its own has failed first: then it gets the error of that call.
 */
export async function settleOn<T>(
  queue: Queue,
  future: Future<Outcome<T>>,
  failed: (unreported: InferletError | undefined) => void,
): Promise<T> {
  try {
    return await settle(future);
  } catch (thrown) {
    const { code, message } = InferletError.from(thrown);
    const first = await takeError(queue);
    failed(first?.code === code && first.message === message ? undefined : first);
    throw thrown;
  }
}

/** Takes the first error of a queue since the last call, if any. The queue then continues without the error. */
export async function takeError(queue: Queue): Promise<InferletError | undefined> {
  try {
    await settle(queue.synchronize());
    return undefined;
  } catch (thrown) {
    return InferletError.from(thrown);
  }
}

/** Keeps a call in `calls` until the call ends. @returns the call */
export function holdUntilSettled<T>(call: Promise<T>, calls: Set<Promise<unknown>>): Promise<T> {
  const forget = () => void calls.delete(call);
  calls.add(call);
  call.then(forget, forget);
  return call;
}
