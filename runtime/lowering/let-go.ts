/** Key of a function on a host function's promise; see {@link lettingGo}. */
export const LET_GO: unique symbol = Symbol('let go');

interface Held extends Promise<unknown> {
  readonly [LET_GO]?: () => void;
}

/**
 * Calls `letGo` once, when the guest has read the promise's value or has dropped the future, settled or not. When the guest itself ends,
 * `letGo` is not called: the owner of the guest's accounts closes them then. Returns the same promise.
 */
export function lettingGo<T>(promise: Promise<T>, letGo: () => void): Promise<T> {
  return Object.assign(promise, { [LET_GO]: letGo });
}

/** Returns the function to call when the guest no longer needs a promise's value, or null. */
export function letGoOf(promise: Held): (() => void) | null {
  return promise[LET_GO] ?? null;
}
