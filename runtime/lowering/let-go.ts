/** Key of a function on a promise that a host function answers with; see {@link lettingGo}. */
export const LET_GO: unique symbol = Symbol('let go');

interface Held extends Promise<unknown> {
  readonly [LET_GO]?: () => void;
}

/**
 * Has `letGo` called, once, when the guest needs the promise's value no more: it has read it, or it has dropped the future, settled or not.
 * Nobody is told when a guest ends: whoever keeps an account for it closes that with it. Answers the same promise.
 */
export function lettingGo<T>(promise: Promise<T>, letGo: () => void): Promise<T> {
  return Object.assign(promise, { [LET_GO]: letGo });
}

/** What is to be called when the guest needs a promise's value no more, or null. */
export function letGoOf(promise: Held): (() => void) | null {
  return promise[LET_GO] ?? null;
}
