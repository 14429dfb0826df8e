import assert from 'node:assert/strict';
import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** The value of an outcome that must be `ok`. */
export function value<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'ok') return outcome.val;
  assert.fail(`${outcome.val.tag}: ${outcome.val.val}`);
}

/** The tag of an outcome's error; `ok` without one. */
export const failureOf = (outcome: Outcome<unknown>): string => (outcome.tag === 'err' ? outcome.val.tag : 'ok');
