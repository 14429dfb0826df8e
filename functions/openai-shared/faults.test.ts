import assert from 'node:assert/strict';
import { it } from 'node:test';
import { isRequestFault } from './faults.ts';

it('isRequestFault is true for errors in the arguments, and false for failures of the platform', () => {
  for (const code of ['invalid-argument', 'unsupported'] as const) assert.ok(isRequestFault(code), code);
  for (const code of ['unavailable', 'limit-exceeded', 'closed', 'cancelled', 'internal'] as const) {
    assert.ok(!isRequestFault(code), code);
  }
});
