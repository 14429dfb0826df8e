import assert from 'node:assert/strict';
import { it } from 'node:test';
import { SignedOut } from './signed-out.ts';

it('sessions that signed out are remembered for as long as they could go on, or while there is room', () => {
  const out = new SignedOut(2);
  out.add('long', 1000, 0);
  out.add('short', 100, 0);
  out.add('new', 500, 100);
  assert.deepEqual(
    ['long', 'short', 'new'].map((id) => out.has(id)),
    [true, false, true],
    'what is over is forgotten',
  );
  out.add('next', 600, 100);
  assert.deepEqual(
    ['long', 'new', 'next'].map((id) => out.has(id)),
    [true, false, true],
    'then what ends first',
  );
});
