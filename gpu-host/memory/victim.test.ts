import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { chooseVictims } from './victim.ts';

test('the newest goes first, and only as many as are needed', () => {
  const others = [
    { id: 'b', arrival: 2, pages: 4 },
    { id: 'd', arrival: 4, pages: 4 },
    { id: 'c', arrival: 3, pages: 4 },
  ];
  const oldest = { id: 'a', arrival: 1, pages: 2 };
  assert.deepEqual(chooseVictims(oldest, others, 3, 3, 20), { kind: 'terminate', victims: [] });
  assert.deepEqual(chooseVictims(oldest, others, 4, 1, 20), { kind: 'terminate', victims: ['d'] });
  assert.deepEqual(chooseVictims(oldest, others, 6, 1, 20), { kind: 'terminate', victims: ['d', 'c'] });
  assert.deepEqual(chooseVictims({ id: 'e', arrival: 9, pages: 0 }, others, 4, 1, 20), { kind: 'requester' });
  assert.deepEqual(chooseVictims(oldest, others, 19, 1, 20), { kind: 'refuse' });
});

test('nobody older than the requester is ended, and the oldest always gets what fits the pool', () => {
  const holder = fc.record({ arrival: fc.nat({ max: 50 }), pages: fc.nat({ max: 10 }) });
  fc.assert(
    fc.property(
      fc.array(holder, { maxLength: 12 }),
      holder,
      fc.nat({ max: 40 }),
      fc.nat({ max: 20 }),
      (holders, asking, needed, free) => {
        const others = holders.map((other, i) => ({ id: `i${i}`, ...other }));
        const requester = { id: 'r', ...asking };
        const total = free + requester.pages + others.reduce((sum, { pages }) => sum + pages, 0);
        const decision = chooseVictims(requester, others, needed, free, total);
        const byId = new Map(others.map((other) => [other.id, other]));
        if (decision.kind === 'terminate') {
          let available = free;
          for (const id of decision.victims) {
            assert.ok(available < needed, 'nobody is ended in vain');
            assert.ok(byId.get(id)!.arrival > requester.arrival);
            available += byId.get(id)!.pages;
          }
          assert.ok(available >= needed);
        }
        const isOldest = others.every((other) => other.arrival > requester.arrival);
        if (isOldest && needed <= total - requester.pages) assert.equal(decision.kind, 'terminate');
        if (needed > total - requester.pages) assert.equal(decision.kind, 'refuse');
      },
    ),
    { seed: 7, numRuns: 2000 },
  );
});
