/** Key of a function on a host function's promise; see {@link withRelease}. */
const RELEASE: unique symbol = Symbol('let go');

/** @param isRead true when the guest has read the value, false when it has dropped the future unread */
export type Release = (isRead: boolean) => void;

interface ReleasablePromise extends Promise<unknown> {
  readonly [RELEASE]?: Release;
}

/**
 * Calls `release` once, when the guest has read the promise's value or has dropped the future, settled or not. `release` is not called when the
 * guest itself ends: the host then closes all that it keeps for this guest. Returns the same promise.
 */
export function withRelease<T>(promise: Promise<T>, release: Release): Promise<T> {
  return Object.assign(promise, { [RELEASE]: release });
}

/** Returns the function to call when the guest no longer needs a promise's value, or null. */
export function releaseOf(promise: ReleasablePromise): Release | null {
  return promise[RELEASE] ?? null;
}
