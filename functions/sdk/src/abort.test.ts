import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { abortable, abortError, aborter, throwIfAborted } from './abort.ts';
import { InferletError } from './errors.ts';

const never = new Promise<never>(() => undefined);
const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'none',
    (error) => `${error.code}: ${error.message}`,
  );

describe('abort', () => {
  it("fails at once with the signal's InferletError, or with cancelled and the reason's text", async () => {
    const controller = new AbortController();
    const waiting = codeOf(abortable(never, controller.signal));
    controller.abort(new InferletError('deadline-exceeded', 'too long'));
    assert.equal(await waiting, 'deadline-exceeded: too long');
    assert.equal(await codeOf(abortable(never, controller.signal)), 'deadline-exceeded: too long');
    assert.equal(abortError(AbortSignal.abort('enough')).message, 'enough');
    assert.equal(abortError(AbortSignal.abort()).code, 'cancelled');
    assert.throws(() => throwIfAborted(AbortSignal.abort('x')), { code: 'cancelled' });
    throwIfAborted(undefined);
  });

  it('returns the outcome of a promise that settles before an abort', async () => {
    const controller = new AbortController();
    assert.equal(await abortable(Promise.resolve(3), controller.signal), 3);
    assert.equal(
      await codeOf(abortable(Promise.reject(new InferletError('closed', 'x')), controller.signal)),
      'closed: x',
    );
    controller.abort();
    assert.equal(await abortable(Promise.resolve(4), undefined), 4);
  });

  it('aborter() follows another signal until it is disposed of itself', () => {
    const outer = new AbortController();
    const disposedSignal = (() => {
      using inner = aborter(outer.signal);
      return inner.signal;
    })();
    using following = aborter(outer.signal);
    outer.abort('stop');
    assert.equal(disposedSignal.aborted, false);
    assert.equal(following.signal.aborted, true);
    assert.equal(following.signal.reason, 'stop');
    using madeAfterAbort = aborter(outer.signal);
    assert.equal(madeAfterAbort.signal.aborted, true);
  });
});
