import assert from 'node:assert/strict';
import { it } from 'node:test';
import { carriedBytes, Outgoing } from './outgoing.ts';

const MIB = 2 ** 20;

it('bounds the bytes that the calls of a tenant carry over all its inferlets, and gives them back', () => {
  const shared = carriedBytes(64 * MIB);
  const many = Array.from({ length: 4 }, () => new Outgoing(shared, 'many'));
  const begun: Outgoing[] = [];
  for (const outgoing of many)
    for (let i = 0; i < 16; i++) {
      if (outgoing.refusal(MIB)) continue;
      outgoing.begin(MIB);
      begun.push(outgoing);
    }
  assert.equal(begun.length, 32);
  assert.equal(many[3]?.refusal(MIB)?.tag, 'limit-exceeded');
  assert.equal(many[3]?.refusal(1024), null, 'a small call has room');
  const other = new Outgoing(shared, 'other');
  for (let i = 0; i < 16; i++) {
    assert.equal(other.refusal(MIB), null);
    other.begin(MIB);
  }
  for (let i = 0; i < 16; i++) other.end(MIB);
  for (const outgoing of begun) outgoing.end(MIB);
  assert.equal(shared.total, 0);
  assert.equal(many[3]?.refusal(MIB), null);
});
