import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
import { InferletError, model } from '@pie/inferlet';
import { allocate, Queue, settle } from '@pie/inferlet/raw';

/** Valid and invalid calls of one function of the contract. */
export interface Case {
  /** Makes valid calls. Throws or returns false when the function breaks its contract. */
  ok(): unknown;
  /** Invalid calls, by the error code that each must fail with. */
  readonly fails?: Readonly<Record<string, () => unknown>>;
}

/** Cases by `interface.core-name` of `wit/generated/world.ts`. */
export type Cases = Readonly<Record<string, Case>>;

/** Result of a case. */
export interface CaseReport {
  readonly ok: true | string;
  /** The actual code by the expected code. */
  readonly fails: Readonly<Record<string, string>>;
}

export async function report({ ok, fails = {} }: Case): Promise<CaseReport> {
  const codes: Record<string, string> = {};
  for (const [code, call] of Object.entries(fails)) codes[code] = await codeOf(call);
  try {
    const result = await ok();
    return { ok: result === false ? 'it does not hold' : true, fails: codes };
  } catch (thrown) {
    return { ok: String(thrown instanceof Error ? `${thrown.message} ${thrown.stack}` : thrown), fails: codes };
  }
}

async function codeOf(call: () => unknown): Promise<string> {
  try {
    await call();
    return 'nothing';
  } catch (thrown) {
    return InferletError.from(thrown).code;
  }
}

type FutureOutcome<T> = Future<Outcome<T>>;

/** A model that no platform has. */
export const NO_MODEL = 'no-such-model';
/** An address that no allocation returns. */
export const NO_ADDRESS = 4_000_000;

export const newQueue = (name: string = model().name): Queue => new Queue(name);

/** Issues calls that have no answer, and throws their error. `synchronize` reports it. */
export async function issued(call: (queue: Queue) => void, name?: string): Promise<void> {
  using queue = newQueue(name);
  call(queue);
  await settle(queue.synchronize());
}

/** Drops a resource only after the answer to a call on it: the engine may drop a resource without references while its call still waits. */
export async function on<R extends Handle, T>(resource: R, call: (resource: R) => FutureOutcome<T>): Promise<T> {
  try {
    return await settle(call(resource));
  } finally {
    resource.drop();
  }
}

/** True when two lists have equally many numbers, at least one, and the numbers differ by at most `error`. */
export const near = (a: ArrayLike<number>, b: ArrayLike<number>, error = 1e-4): boolean =>
  a.length > 0 &&
  a.length === b.length &&
  Array.prototype.every.call(a, (value: number, i) => Math.abs(value - (b[i] ?? 0)) <= error);

export const pagesOf = (queue: Queue, count: number): number[] => allocate.allocatePages(queue, count);
export const embedsOf = (queue: Queue, count: number): number[] => allocate.allocateEmbeds(queue, count);
export const upTo = (count: number, from = 0): number[] => Array.from({ length: count }, (_, i) => from + i);
