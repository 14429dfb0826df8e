import assert from 'node:assert/strict';
import { it } from 'node:test';
import { GrammarAccount } from '../../grammar/account.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { ENDLESS } from '../../workers/account.ts';
import { Outgoing } from '../services/ask.ts';
import { inferletBytes, takenBytes, UnreadResult, UnreadResults } from './holdings.ts';

const MIB = 2 ** 20;

it('the calls of all inferlets of a tenant share a bound on bytes, and give their bytes back when they end', () => {
  const shared = inferletBytes(64 * MIB);
  const many = Array.from({ length: 4 }, () => new Outgoing(takenBytes(shared, 'many')));
  const begun: Outgoing[] = [];
  for (const outgoing of many)
    for (let i = 0; i < 16; i++) {
      if (outgoing.refusal(MIB)) continue;
      outgoing.begin(MIB);
      begun.push(outgoing);
    }
  // Without other tenants, a tenant may hold half of the 64 MiB.
  assert.equal(begun.length, 32);
  assert.equal(many[3]?.refusal(MIB)?.tag, 'limit-exceeded');
  assert.equal(many[3]?.refusal(1024), null, 'a small call has room');
  // Another tenant can always hold a quarter.
  const other = new Outgoing(takenBytes(shared, 'other'));
  for (let i = 0; i < 16; i++) {
    assert.equal(other.refusal(MIB), null);
    other.begin(MIB);
  }
  for (let i = 0; i < 16; i++) other.end(MIB);
  for (const outgoing of begun) outgoing.end(MIB);
  assert.equal(shared.total, 0);
  assert.equal(many[3]?.refusal(MIB), null);
});

it('the unread results of all inferlets of a tenant share a bound, until the inferlets end', () => {
  const shared = inferletBytes(64 * MIB);
  const open = (tenant: string) => new UnreadResults(takenBytes(shared, tenant));
  const [first, second] = [open('many'), open('many')];
  assert.equal(new UnreadResult(first).offer(32 * MIB), null);
  const result = new UnreadResult(second);
  assert.equal(result.offer(MIB)?.tag, 'limit-exceeded');
  assert.equal(result.offer(1024), null, 'a small result has room');
  assert.equal(new UnreadResult(open('other')).offer(16 * MIB), null);
  first.close();
  assert.equal(result.offer(MIB), null);
  result.release(true);
  assert.equal(shared.total, 16 * MIB);
});

it('an inferlet without unread results may get one of any size, and a dropped result always has room', () => {
  const unread = new UnreadResults(takenBytes(inferletBytes(256 * MIB), 'one'));
  const large = new UnreadResult(unread);
  assert.equal(large.offer(33 * MIB), null);
  const dropped = new UnreadResult(unread);
  assert.equal(dropped.offer(1)?.tag, 'limit-exceeded');
  dropped.release(false);
  assert.equal(dropped.offer(1), null);
  assert.equal(unread.bytes, 33 * MIB);
  large.release(true);
  assert.equal(unread.bytes, 0);
});

it("the grammar calls and the accepted tokens of a tenant's inferlets share a bound on bytes", () => {
  const shared = inferletBytes(8 * MIB);
  const open = () => new GrammarAccount(ENDLESS, takenBytes(shared, 'many'));
  const [first, second] = [open(), open()];
  // An accepted token takes 8 bytes, so the tokens and the call take half of the 8 MiB together.
  assert.equal(first.keep(MIB / 4), null);
  assert.equal(first.begin(2 * MIB), null);
  assert.equal(second.keep(MIB / 8)?.tag, 'limit-exceeded');
  assert.equal(second.begin(MIB)?.tag, 'limit-exceeded');
  assert.equal(second.keep(1), null, 'a few tokens have room');
  first.give(MIB / 4);
  assert.equal(second.begin(MIB), null);
  first.end(2 * MIB);
  second.end(MIB);
  second.give(1);
  assert.equal(shared.total, 0);
});

it('an inferlet that has ended holds no bytes', async () => {
  const shared = inferletBytes();
  const guest = new TestInferlet(null, { services: { bytes: shared } });
  assert.equal(guest.inferlet.grammarAccount.keep(1000), null);
  guest.inferlet.unread.count(1000);
  assert.ok(shared.total > 1000);
  await guest.end();
  assert.equal(shared.total, 0);
});
