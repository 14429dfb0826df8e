import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { CapacityPolicy, type Demand } from './capacity.ts';

const demand = (id: string, arrival: number, pages = 0): Demand => ({ id, arrival, pages: { m: pages } });

describe('capacity policy', () => {
  test('nobody overtakes the head of the line', () => {
    const policy = new CapacityPolicy({ slots: 4, pages: { m: 10 } });
    policy.offer(demand('big', 1, 8));
    policy.offer(demand('huge', 2, 9));
    policy.offer(demand('small', 3, 1));
    assert.equal(policy.next()?.id, 'big');
    assert.equal(policy.next(), null, 'the next one does not fit, and the small one behind it waits');
    assert.equal(policy.room, 0);
    policy.release('big');
    assert.equal(policy.next()?.id, 'huge');
    assert.equal(policy.next()?.id, 'small');
    assert.equal(policy.used('m'), 10);
  });

  test('one that is larger than the machine starts alone; what is not counted does not hold anybody back', () => {
    const policy = new CapacityPolicy({ slots: 2, pages: { m: 10 } });
    policy.offer(demand('small', 1, 1));
    policy.offer(demand('larger than all', 2, 11));
    assert.equal(policy.next()?.id, 'small');
    assert.equal(policy.next(), null);
    policy.release('small');
    assert.equal(policy.next()?.id, 'larger than all');
    const free = new CapacityPolicy({ slots: 2, pages: {} });
    free.offer(demand('a', 1, 1e9));
    free.offer(demand('b', 2, 1e9));
    assert.ok(free.next() && free.next());
  });

  test('overcommit lets more in; withdrawing and resizing make room', () => {
    const policy = new CapacityPolicy({ slots: 3, pages: { m: 10 }, overcommit: 1.5 });
    policy.offer(demand('a', 1, 10));
    policy.offer(demand('b', 2, 5));
    policy.offer(demand('c', 3, 1));
    assert.equal(policy.next()?.id, 'a');
    assert.equal(policy.next()?.id, 'b');
    assert.equal(policy.next(), null);
    policy.resize({ slots: 3, pages: { m: 16 } });
    assert.equal(policy.next()?.id, 'c');
    policy.offer(demand('d', 4));
    policy.offer(demand('e', 5));
    assert.ok(policy.withdraw('d') && !policy.withdraw('d'));
    policy.release('a');
    assert.equal(policy.next()?.id, 'e');
    assert.throws(() => new CapacityPolicy({ slots: 0, pages: {} }), RangeError);
  });

  test('whatever comes and goes: never above capacity (but for a lone one), first come first served, and everybody starts', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('offer' as const), pages: fc.nat(14), late: fc.nat(3) }),
      fc.record({ kind: fc.constant('release' as const), which: fc.nat(20) }),
      fc.record({ kind: fc.constant('withdraw' as const), which: fc.nat(20) }),
    );
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 80 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 20 }),
        (steps, slots, pages) => {
          const policy = new CapacityPolicy({ slots, pages: { m: pages } });
          const running = new Map<string, Demand>();
          const waiting = new Map<string, Demand>();
          let arrivals = 0;
          const startAll = () => {
            for (let next = policy.next(); next !== null; next = policy.next()) {
              const { arrival } = next;
              assert.ok(
                [...waiting.values()].every((other) => other.arrival >= arrival),
                'somebody overtook',
              );
              waiting.delete(next.id);
              running.set(next.id, next);
              const used = [...running.values()].reduce((sum, held) => sum + (held.pages.m ?? 0), 0);
              assert.equal(policy.used('m'), used);
              assert.ok(running.size === 1 || used <= pages, 'above capacity');
            }
            assert.ok(running.size <= slots);
            assert.equal(policy.running, running.size);
            assert.ok(running.size > 0 || waiting.size === 0, 'nobody runs though somebody waits');
          };
          for (const action of steps) {
            if (action.kind === 'offer') {
              arrivals += 1;
              // Given back ones come with an earlier arrival than those in line.
              const arrival = Math.max(1, arrivals - action.late) + arrivals / 1000;
              const offered = { id: `${arrivals}`, arrival, pages: { m: action.pages } };
              waiting.set(offered.id, offered);
              policy.offer(offered);
            } else {
              const from = action.kind === 'release' ? running : waiting;
              const id = [...from.keys()][action.which % Math.max(1, from.size)];
              if (id === undefined) continue;
              from.delete(id);
              if (action.kind === 'release') policy.release(id);
              else assert.ok(policy.withdraw(id));
            }
            startAll();
          }
          while (running.size > 0) {
            for (const id of [...running.keys()]) {
              running.delete(id);
              policy.release(id);
            }
            startAll();
          }
          assert.equal(waiting.size, 0);
          assert.equal(policy.used('m'), 0);
        },
      ),
      { seed: 20261103, numRuns: 400 },
    );
  });
});
