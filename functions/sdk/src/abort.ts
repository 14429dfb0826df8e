import { InferletError } from './errors.ts';

/** The part of `AbortSignal` that this library needs. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** The error for an aborted signal: its reason if that is an InferletError, else `cancelled` with the reason's text. */
export function abortError({ reason }: AbortSignalLike): InferletError {
  if (reason instanceof InferletError) return reason;
  const text = reason instanceof Error ? reason.message : String(reason);
  return new InferletError('cancelled', reason === undefined || text === '' ? 'This was aborted.' : text);
}

export function throwIfAborted(signal: AbortSignalLike | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** The outcome of `promise`, or the signal's error as soon as it is aborted. After an abort, the outcome of `promise` is ignored. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignalLike | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(abortError(signal));
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

export interface Aborter {
  readonly signal: AbortSignalLike;
  abort(reason?: unknown): void;
}

/** A controller whose signal is also aborted when `outer` is, until the controller is disposed of. */
export function aborter(outer?: AbortSignalLike): Aborter & Disposable {
  const controller = new AbortController();
  const follow = () => controller.abort(outer?.reason);
  if (outer?.aborted) follow();
  else outer?.addEventListener('abort', follow);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    [Symbol.dispose]: () => outer?.removeEventListener('abort', follow),
  };
}

/** The guest's global, declared for projects whose types omit it. */
declare const AbortController: new () => Aborter;
