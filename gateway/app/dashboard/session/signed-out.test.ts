import assert from 'node:assert/strict';
import { it } from 'node:test';
import { SignedOut } from './sessions.ts';

it('a signed-out session is remembered until it expires, or until there is no room', () => {
  const signedOut = new SignedOut(2);
  signedOut.add('long', 1000, 0);
  signedOut.add('short', 100, 0);
  signedOut.add('new', 500, 100);
  assert.deepEqual(
    ['long', 'short', 'new'].map((id) => signedOut.has(id)),
    [true, false, true],
    'the expired session is forgotten',
  );
  signedOut.add('next', 600, 100);
  assert.deepEqual(
    ['long', 'new', 'next'].map((id) => signedOut.has(id)),
    [true, false, true],
    'the session that expires first is forgotten',
  );
});
