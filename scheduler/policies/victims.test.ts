import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { chooseVictims, type Endable, isNewer, MemoryOrder, TenantHoldings } from './preemption.ts';
import { CountedShortfall } from './testing/shortfall.ts';

interface Holder extends Endable<string> {
  readonly id: string;
  /** Pages; other holders may share some of them. */
  readonly pages: ReadonlySet<number>;
}

function holder(id: string, arrival: number, pages: readonly number[], order = 0, account = 'tenant'): Holder {
  return { id, account, arrival, order, heldPages: pages.length, pages: new Set(pages) };
}

/** The order in a memory of `capacity` pages in which these holders hold their pages, shared ones once for each. */
function orderOf(capacity: number, all: readonly Holder[], requester: Holder, needed: number): MemoryOrder<string> {
  const accounts = [...new Set(all.map(({ account }) => account))];
  const holdings = accounts.map((account) => {
    const held = all.filter((one) => one.account === account).reduce((sum, { heldPages }) => sum + heldPages, 0);
    return { account, held, wants: false, isPresent: true };
  });
  return new MemoryOrder(new TenantHoldings(capacity, holdings), { account: requester.account, pages: needed });
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
  const shortfall = new CountedShortfall<Holder>((ended) => needed - free - freed(all, ended));
  const capacity = free + all.reduce((sum, { heldPages }) => sum + heldPages, 0);
  const decision = chooseVictims(requester, others, shortfall, orderOf(capacity, all, requester, needed));
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
        const decision = chooseVictims(requester, others, shortfall, orderOf(free + 20, all, requester, needed));
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

test('a tenant above its share gives way first, whatever its age, and only until it is within its share', () => {
  const [a, b] = ['a', 'b'];
  const hoarder = [
    holder('a1', 1, [1, 2, 3, 4], 0, a),
    holder('a2', 2, [5, 6, 7, 8], 0, a),
    holder('a3', 3, [9, 10], 0, a),
  ];
  const newcomer = holder('b1', 9, [11], 0, b);
  // 12 pages: the share of each tenant is 6. The hoarder holds 10 of them.
  assert.equal(decide(newcomer, hoarder, 2, 1), 'a3');
  assert.equal(decide(newcomer, hoarder, 4, 1), 'a3 a2');
  assert.equal(decide(newcomer, hoarder, 9, 1), 'requester', 'beyond its share, the newcomer ends no other tenant');
  const other = holder('b0', 8, [12], 0, b);
  assert.equal(
    decide(hoarder[0] as Holder, [...hoarder.slice(1), newcomer, other], 1, 0),
    'a3',
    'not the newer tenant b',
  );
  assert.equal(decide(hoarder[2] as Holder, [...hoarder.slice(0, 2), newcomer], 1, 0), 'requester');
});

test('no holder of a tenant within its share ends for another tenant, and a claim within the share finds room', () => {
  const anyHolder = fc.record({ arrival: fc.nat({ max: 20 }), pages: fc.nat({ max: 9 }), tenant: fc.nat({ max: 3 }) });
  fc.assert(
    fc.property(
      fc.array(anyHolder, { minLength: 1, maxLength: 12 }),
      anyHolder,
      fc.nat({ max: 8 }),
      (records, asking, free) => {
        let page = 0;
        const all = [...records, asking].map(({ arrival, pages, tenant }, i) =>
          holder(
            `i${i}`,
            arrival,
            Array.from({ length: pages }, () => page++),
            i,
            `tenant ${tenant}`,
          ),
        );
        const [requester, others] = [all.at(-1) as Holder, all.slice(0, -1)];
        const needed = 1 + asking.pages;
        const order = orderOf(page + free, all, requester, needed);
        const decision = chooseVictims(
          requester,
          others,
          new CountedShortfall<Holder>((ended) => needed - free - freed(all, ended)),
          order,
        );
        const heldBy = (account: string): number =>
          all.filter((one) => one.account === account).reduce((sum, { heldPages }) => sum + heldPages, 0);
        const isWithinShare = heldBy(requester.account) + needed <= order.share;
        const ownOlder = others.some((other) => other.account === requester.account && isNewer(requester, other));
        if (isWithinShare && !ownOlder)
          assert.equal(decision.kind, 'terminate', 'the oldest within its share gets its pages');
        if (decision.kind !== 'terminate') return;
        const left = new Map<string, number>();
        for (const { account, heldPages } of decision.victims) {
          if (account === requester.account) continue;
          const held = left.get(account) ?? heldBy(account);
          assert.ok(held > order.share, 'a tenant within its share lost an inferlet');
          left.set(account, held - heldPages);
        }
      },
    ),
    { seed: 20261130, numRuns: 5000 },
  );
});

test('an order derived from holdings has the share, the excess and the protected pages that a count of all tenants gives', () => {
  const account = fc.nat(9).map(String);
  const holding = fc.record({ account, held: fc.nat(12), wants: fc.boolean(), isPresent: fc.boolean() });
  fc.assert(
    fc.property(
      fc.nat(100),
      fc.uniqueArray(holding, { selector: (each) => each.account, maxLength: 8 }),
      fc.option(fc.record({ account, pages: fc.nat(20) }), { nil: undefined }),
      (capacity, holdings, claim) => {
        const order = new MemoryOrder(new TenantHoldings(capacity, holdings), claim);
        const isClaimant = (each: { account: string }): boolean => each.account === claim?.account;
        const counted = holdings.filter((each) => each.held > 0 || each.wants);
        const others = counted.filter((each) => !isClaimant(each));
        const sharers = others.filter(({ isPresent }) => isPresent).length + (claim ? 1 : 0);
        const share = Math.floor(capacity / Math.max(1, sharers));
        assert.equal(order.share, share);
        let [protectedPages, othersExcess] = [0, 0];
        for (const each of others) {
          const within = each.isPresent ? Math.min(each.held, share) : 0;
          protectedPages += within;
          othersExcess += each.held - within;
          assert.equal(order.excess(each.account), each.held - within);
          assert.equal(order.takeable(each.account), each.held - within);
          assert.equal(order.gives(each.account, each.held), !each.isPresent || each.held > share);
        }
        assert.deepEqual([order.protectedPages, order.othersExcess], [protectedPages, othersExcess]);
        if (!claim) return;
        const own = holdings.find(isClaimant)?.held ?? 0;
        assert.equal(order.excess(claim.account), Math.max(0, own + claim.pages - share));
      },
    ),
    { seed: 20261201, numRuns: 500 },
  );
});
