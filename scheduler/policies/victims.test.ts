import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CountedShortfall } from './testing/shortfall.ts';
import { chooseVictims, isNewer, type Place } from './victims.ts';

interface Holder extends Place {
  readonly id: string;
  /** Pages; other holders may share some of them. */
  readonly pages: ReadonlySet<number>;
}

function holder(id: string, arrival: number, pages: readonly number[], order = 0): Holder {
  return { id, arrival, order, pages: new Set(pages) };
}

/** Number of pages that are free once all of `ended` have ended. */
function freed(all: readonly Holder[], ended: readonly Holder[]): number {
  const stillHeld = new Set(all.filter((one) => !ended.includes(one)).flatMap(({ pages }) => [...pages]));
  const released = new Set(ended.flatMap(({ pages }) => [...pages]));
  return [...released].filter((page) => !stillHeld.has(page)).length;
}

/** The decision as text: the ids of the victims, or the kind of another decision. */

function decide(requester: Holder, others: readonly Holder[], needed: number, free: number): string {
  const all = [requester, ...others];
  const decision = chooseVictims(requester, others, new CountedShortfall((ended) => needed - free - freed(all, ended)));
  return decision.kind === 'terminate' ? decision.victims.map(({ id }) => id).join(' ') : decision.kind;
}

test('the newest holders end first, and as few as suffice', () => {
  const others = [holder('b', 2, [1, 2]), holder('d', 4, [3, 4]), holder('c', 3, [5, 6])];
  const oldest = holder('a', 1, [7]);
  assert.equal(decide(oldest, others, 1, 1), '');
  assert.equal(decide(oldest, others, 3, 1), 'd');
  assert.equal(decide(oldest, others, 4, 1), 'd c');
  assert.equal(decide(oldest, others, 7, 1), 'd c b');
  assert.equal(decide(oldest, others, 8, 1), 'refuse', 'a request that never fits ends no holder');
  assert.equal(decide(holder('e', 9, []), others, 2, 1), 'requester');
  assert.equal(
    decide(holder('x', 3, [], 1), others, 3, 1),
    'd',
    '`c` is older than the requester: smaller order, same arrival',
  );
  assert.equal(decide(holder('x', 3, [], 1), others, 4, 1), 'requester');
});

test('shared pages become free with their last holder, and a holder that would free no pages stays', () => {
  const [old, middle, idle, young] = [
    holder('old', 2, [1, 2]),
    holder('middle', 3, [10, 11]),
    holder('idle', 4, []),
    holder('young', 5, [10, 11, 12]),
  ];
  const oldest = holder('oldest', 1, []);
  const others = [old, middle, idle, young];
  assert.equal(decide(oldest, others, 1, 0), 'young');
  assert.equal(decide(oldest, others, 2, 0), 'young middle', 'the shared pages are free when both holders have ended');
  assert.equal(
    decide(holder('r', 3, [], 9), others, 2, 0),
    'requester',
    'the shared pages stay with `middle`, which is older than the requester',
  );
});

test('only newer holders that free pages end, and the oldest gets every request that fits the pool', () => {
  const anyHolder = { arrival: fc.nat({ max: 6 }), pages: fc.uniqueArray(fc.nat({ max: 12 }), { maxLength: 5 }) };
  fc.assert(
    fc.property(
      fc.array(fc.record(anyHolder), { maxLength: 9 }),
      fc.record(anyHolder),
      fc.nat({ max: 16 }),
      fc.nat({ max: 6 }),
      (records, asking, needed, free) => {
        const others = records.map(({ arrival, pages }, i) => holder(`i${i}`, arrival, pages, i));
        const requester = holder('r', asking.arrival, asking.pages, 100);
        const all = [requester, ...others];
        const missing = (ended: readonly Holder[]): number => needed - free - freed(all, ended);
        const shortfall = new CountedShortfall(missing);
        const decision = chooseVictims(requester, others, shortfall);
        assert.ok(shortfall.changes <= 3 * others.length, 'at most, each holder leaves, stays and leaves again');
        const newer = others.filter((other) => isNewer(other, requester));
        if (missing(others) > 0) assert.equal(decision.kind, 'refuse');
        else if (missing(newer) > 0) assert.equal(decision.kind, 'requester');
        else {
          assert.ok(decision.kind === 'terminate');
          const { victims } = decision;
          assert.ok(missing(victims) <= 0, 'enough pages are free after the victims');
          for (const [i, victim] of victims.entries()) {
            assert.ok(isNewer(victim, requester));
            const rest = victims.filter((other) => other !== victim);
            assert.ok(freed(all, rest) < freed(all, victims), 'each victim frees pages');
            if (i > 0) assert.ok(isNewer(victims[i - 1]!, victim), 'newest first');
          }
          const spared = newer.filter((other) => !victims.includes(other));
          for (const other of spared) {
            const oldestVictim = victims.at(-1);
            if (!oldestVictim || isNewer(oldestVictim, other)) continue;
            assert.equal(
              freed(all, [...victims, other]),
              freed(all, victims),
              'a spared holder that is newer than the oldest victim frees no pages',
            );
          }
          if (victims.length > 0) assert.ok(missing(victims.slice(0, -1)) > 0, 'the last victim is needed');
        }
      },
    ),
    { seed: 7, numRuns: 5000 },
  );
});
