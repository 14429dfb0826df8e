import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { networkOf, UnprovenConnections } from './security.ts';

const MAX = 64;
/** A sixteenth of `MAX`. */
const SHARE = 4;

interface Peer {
  readonly id: number;
  readonly address: string;
}

/** The connection that gives way, by the rule in words. */
function oracle(open: readonly Peer[], newcomer: Peer): Peer | undefined {
  const of = (address: string) => open.filter((peer) => peer.address === address);
  const most = Math.max(...open.map(({ address }) => of(address).length));
  // Of several addresses with the most, any may give way.
  const crowds = most > SHARE ? open.filter(({ address }) => of(address).length === most) : open;
  return crowds.find((peer) => peer !== newcomer);
}

const steps = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: fc.record({ kind: fc.constant('open' as const), address: fc.nat(40) }) },
    { weight: 5, arbitrary: fc.record({ kind: fc.constant('open' as const), address: fc.constant(0) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('close' as const), at: fc.nat(1000) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('room' as const), room: fc.integer({ min: 0, max: MAX }) }) },
  ),
  { maxLength: 400, size: 'max' },
);

test('the newcomer stays, the bound holds, and the oldest of the largest crowd gives way, else the oldest of all', () => {
  fc.assert(
    fc.property(steps, (schedule) => {
      const connections = new UnprovenConnections<Peer>(MAX);
      let open: Peer[] = [];
      let room = MAX;
      for (const [id, step] of schedule.entries()) {
        if (step.kind === 'room') room = step.room;
        else if (step.kind === 'close') {
          const [gone] = open.splice(step.at % Math.max(1, open.length), 1);
          if (gone) connections.remove(gone);
        } else {
          const newcomer = { id, address: `10.0.0.${step.address}` };
          open.push(newcomer);
          for (const dropped of connections.add(newcomer, newcomer.address, room)) {
            const expected = oracle(open, newcomer);
            const sizeOf = ({ address }: Peer) => open.filter((peer) => peer.address === address).length;
            assert.ok(expected && dropped !== newcomer);
            // Crowds of equal size may give way in any order; within a crowd, the oldest does.
            assert.equal(sizeOf(dropped), sizeOf(expected) > SHARE ? sizeOf(expected) : sizeOf(dropped));
            const among = sizeOf(dropped) > SHARE ? open.filter(({ address }) => address === dropped.address) : open;
            assert.equal(dropped, among[0]);
            open = open.filter((peer) => peer !== dropped);
          }
          assert.ok(open.length <= Math.max(1, room));
        }
        assert.equal(connections.count, open.length);
      }
    }),
  );
});

test('a flood from one address drops its own connections, and one proxy may have all of them', () => {
  const connections = new UnprovenConnections<string>(MAX);
  for (const name of ['a', 'b', 'c']) assert.deepEqual(connections.add(name, `10.0.0.${name.charCodeAt(0)}`, MAX), []);
  const dropped = Array.from({ length: 1000 }, (_, i) => connections.add(`flood-${i}`, '192.0.2.1', MAX)).flat();
  assert.equal(dropped.length, 1000 - (MAX - 3));
  assert.deepEqual(dropped.slice(0, 2), ['flood-0', 'flood-1']);
  const proxy = new UnprovenConnections<number>(MAX);
  for (let i = 0; i < MAX; i++) assert.deepEqual(proxy.add(i, '10.0.0.1', MAX), []);
  assert.deepEqual(proxy.add(MAX, '10.0.0.1', MAX), [0]);
});

test('a network of IPv6 counts as one address, and IPv4 within IPv6 as the IPv4 address', () => {
  const same = ['2001:db8:0:7::1', '2001:db8::7:0:0:0:9', '2001:0db8:0000:0007:ffff::', '2001:DB8:0:7:1:2:3:4'];
  assert.deepEqual(new Set(same.map(networkOf)), new Set(['2001:db8:0:7']));
  assert.notEqual(networkOf('2001:db8:0:8::1'), networkOf('2001:db8:0:7::1'));
  assert.equal(networkOf('::ffff:192.0.2.1'), networkOf('192.0.2.1'));
  assert.notEqual(networkOf('192.0.2.1'), networkOf('192.0.2.2'));
  assert.equal(networkOf('fe80::1%eth0'), 'fe80:0:0:0');
  assert.equal(networkOf('::1'), '0:0:0:0');
});
