import assert from 'node:assert/strict';
import { it } from 'node:test';
import { isRequestFault } from './faults.ts';

it('blames a request for its arguments, and not for a platform that is busy or full', () => {
  for (const code of ['invalid-argument', 'unsupported'] as const) assert.ok(isRequestFault(code), code);
  for (const code of ['unavailable', 'limit-exceeded', 'closed', 'cancelled', 'internal'] as const) {
    assert.ok(!isRequestFault(code), code);
  }
});
