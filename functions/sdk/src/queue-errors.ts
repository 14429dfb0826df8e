import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
import { InferletError } from './errors.ts';
import { type Queue, settle } from './raw.ts';

/**
 * The value of a call on a queue. When it fails, the queue's error is taken with it, so that nobody hears of it a second time. `failed` is then
 * called, with the error of an earlier call that answers nobody, if it was that: what that call should have done was not done.
 */
export async function settleOn<T>(
  queue: Queue,
  future: Future<Outcome<T>>,
  failed: (unheard: InferletError | undefined) => void,
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

/** The first error of a queue since the last time, if there was one; the queue then goes on as if there had been none. */
export async function takeError(queue: Queue): Promise<InferletError | undefined> {
  try {
    await settle(queue.synchronize());
    return undefined;
  } catch (thrown) {
    return InferletError.from(thrown);
  }
}
