import assert from 'node:assert/strict';
import { it } from 'node:test';
import { SignedOut } from './signed-out.ts';

it('a signed-out session is remembered until it expires, or until there is no room', () => {
  const out = new SignedOut(2);
  out.add('long', 1000, 0);
  out.add('short', 100, 0);
  out.add('new', 500, 100);
  assert.deepEqual(
    ['long', 'short', 'new'].map((id) => out.has(id)),
    [true, false, true],
    'the expired session is forgotten',
  );
  out.add('next', 600, 100);
  assert.deepEqual(
    ['long', 'new', 'next'].map((id) => out.has(id)),
    [true, false, true],
    'the session that expires first is forgotten',
  );
});
