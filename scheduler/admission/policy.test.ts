import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DEFAULT_RESERVE, MEMORY } from './job.ts';
import { anyCapacity, anyOrder, LEAVE, MANY, Player } from './testing/history.ts';
import {
  AdmissionPolicy,
  type Capacity,
  type Demand,
  type Limits,
  MAX_OVERTAKEN,
  type Pages,
} from './testing/policy.ts';

const sum = (all: Iterable<Pages>, model: string): number =>
  [...all].reduce((sum, pages) => sum + (pages[model] ?? 0), 0);

/** Pages of all models. */
const total = (all: Iterable<Pages>): number =>
  [...all].flatMap(Object.entries).reduce((sum, [model, count]) => sum + (model === MEMORY ? 0 : count), 0);

/** The pages that a head needs: of each model at most its tenant's limit. */
const needed = ({ pages }: Demand, { pages: pageLimit = Number.POSITIVE_INFINITY }: Limits): Pages =>
  Object.fromEntries(
    Object.entries(pages).map(([model, count]) => [model, model === MEMORY ? count : Math.min(count, pageLimit)]),
  );

/** Keeps three invocations of each tenant waiting while simulated time passes. Returns the slot-ms held, by tenant. */
function simulate(
  policy: AdmissionPolicy,
  backlog: ReadonlyMap<string, { readonly runMs: (i: number) => number; readonly from: number }>,
  untilMs: number,
): Map<string, number> {
  const slotMsByTenant = new Map<string, number>();
  const running: { readonly endsAt: number; readonly id: string; readonly tenant: string }[] = [];
  let arrivals = 0;
  let now = 0;
  while (now < untilMs) {
    for (const [tenant, { from }] of backlog) {
      while (now >= from && policy.queue(tenant).length < 3) {
        arrivals += 1;
        policy.enter({ id: `${arrivals}`, tenant, arrival: arrivals, pages: {} }, now);
      }
    }
    for (const { id, tenant } of policy.admit(now)) {
      const runMs = backlog.get(tenant)?.runMs(Number(id)) ?? 0;
      running.push({ id, tenant, endsAt: now + runMs });
      slotMsByTenant.set(tenant, (slotMsByTenant.get(tenant) ?? 0) + Math.min(runMs, untilMs - now));
    }
    running.sort((a, b) => a.endsAt - b.endsAt);
    const next = running.shift();
    if (!next) {
      now += 1;
      continue;
    }
    now = Math.max(now, next.endsAt);
    policy.leave(next.id, now);
  }
  return slotMsByTenant;
}

describe('admission policy', () => {
  test('admission keeps capacity, limits and tenant order, leaves no fitting head idle, and starts every head', () => {
    fc.assert(
      fc.property(
        anyCapacity,
        fc.array(anyOrder(5), { minLength: 30, maxLength: 100, size: 'max' }),
        (first, orders) => {
          const player = new Player(first);
          const limits = new Map<string, Limits>();
          let capacity: Capacity = first;
          let mostStarts = first.starts;
          /** By id, true for an invocation admitted with latency targets or while its tenant held few slots. */
          const isFew = new Map<string, boolean>();
          for (const order of orders) {
            const step = player.play(order);
            if (step === null) continue;
            if (step.kind === 'limit') limits.set(step.tenant, step);
            if (step.kind === 'resize') capacity = step;
            const { admitted, waiting } = player;
            const countedOf = (tenant: string): Pages[] =>
              [...admitted.values()]
                .filter((one) => one.tenant === tenant)
                .map(({ id }) => player.policy.countedPages(id));
            const all = [...admitted.keys()].map((id) => player.policy.countedPages(id));
            const used = (model: string) => sum(all, model);
            const openTenants = new Set([...admitted.values(), ...waiting.values()].map(({ tenant }) => tenant));
            const headNeeds = (tenant: string, model: string): boolean => {
              const head = waiting.get(player.policy.queue(tenant)[0] ?? '');
              return head !== undefined && (needed(head, limits.get(tenant) ?? {})[model] ?? 0) > 0;
            };
            const shareOf = (model: string, pages: number): number => {
              if (model === MEMORY) return 0;
              const sharers = [...openTenants].filter(
                (tenant) => sum(countedOf(tenant), model) > 0 || headNeeds(tenant, model),
              ).length;
              const isAlone = openTenants.size < 2;
              return Math.floor((pages - Math.floor(pages * capacity.reserve)) / (isAlone ? 1 : Math.max(2, sharers)));
            };
            if (step.admitted.length > 0) {
              assert.ok(admitted.size <= capacity.slots);
              for (const [model, pages] of Object.entries(capacity.pages)) {
                const last: string | undefined = step.admitted.findLast(
                  (id) => (player.policy.countedPages(id)[model] ?? 0) > 0,
                );
                const tenant: string | undefined = last && admitted.get(last)?.tenant;
                // A head with kept room may need more than the share.
                const ownPages: number = tenant === undefined ? 0 : sum(countedOf(tenant), model);
                const lastPages: number = last === undefined ? 0 : (player.policy.countedPages(last)[model] ?? 0);
                const isWithinShare = ownPages - lastPages <= shareOf(model, pages);
                assert.ok(!tenant || used(model) <= pages || isWithinShare, 'pages above capacity');
              }
            }
            const reserveSlots = Math.floor(capacity.slots * capacity.reserve);
            const fewSlots = reserveSlots > 0 ? Math.max(1, Math.floor(reserveSlots / 2)) : 0;
            for (const [i, id] of step.admitted.entries()) {
              const demand = admitted.get(id)!;
              const later = step.admitted.slice(i + 1).filter((each) => admitted.get(each)?.tenant === demand.tenant);
              const own = countedOf(demand.tenant);
              const {
                suspended,
                concurrency = Number.POSITIVE_INFINITY,
                pages = Number.POSITIVE_INFINITY,
              } = limits.get(demand.tenant) ?? {};
              isFew.set(id, demand.latency === true || own.length - later.length <= fewSlots);
              assert.ok(!suspended && own.length <= concurrency && (own.length === 1 || total(own) <= pages));
              for (const other of waiting.values()) {
                assert.ok(
                  other.tenant !== demand.tenant || other.arrival > demand.arrival,
                  'overtaken within the queue of its own tenant',
                );
              }
            }
            // Checks work conservation without the policy's own code.
            mostStarts = Math.max(mostStarts, capacity.starts);
            const few = [...player.starting.keys()].filter((id) => isFew.get(id)).length;
            const others = player.starting.size - few;
            assert.ok(Math.max(few, others) <= mostStarts, 'at most `starts` of each kind are on their way');
            if (player.policy.keepsRoom || capacity.reserve > 0) continue;
            if (admitted.size >= Math.min(capacity.slots, capacity.pace ?? capacity.slots)) continue;
            if (player.starting.size >= capacity.starts) continue;
            for (const { tenant } of waiting.values()) {
              const demand = waiting.get(player.policy.queue(tenant)[0]!)!;
              const own = countedOf(tenant);
              const limit = limits.get(tenant) ?? {};
              const need = needed(demand, limit);
              const isAllowed =
                !limit.suspended &&
                own.length < (limit.concurrency ?? Number.POSITIVE_INFINITY) &&
                (own.length === 0 || total([...own, need]) <= (limit.pages ?? Number.POSITIVE_INFINITY));
              const fits = Object.entries(need).every(([model, count]) => {
                const pages = capacity.pages[model];
                if (pages === undefined || used(model) === 0 || used(model) + count <= pages) return true;
                return sum(own, model) + count <= shareOf(model, pages);
              });
              // A head that waits for free memory may stay in the queue although its expected pages fit.
              const waits = demand.short !== undefined && admitted.size > 0;
              assert.ok(!isAllowed || !fits || waits, 'the head could have started');
            }
          }
          // No starvation: without limits, every waiting invocation starts once the ones before it have ended.
          for (let tenant = 0; tenant < 5; tenant += 1) player.play({ ...LEAVE, kind: 'limit', tenant });
          player.play({ ...LEAVE, kind: 'resize' });
          for (let rounds = player.waiting.size + player.admitted.size + 1; rounds > 0; rounds -= 1) {
            player.play({ ...LEAVE, which: rounds });
          }
          assert.equal(player.admitted.size + player.waiting.size, 0);
          assert.equal(player.policy.admitted, 0);
        },
      ),
      { seed: 20261120, numRuns: process.env.PIE_TEST_ALL ? 600 : 200 },
    );
  });

  test('an invocation ended for lack of memory restarts alone, or after a newer report with room; only its tenant waits for it', () => {
    const policy = new AdmissionPolicy({ slots: 20, starts: MANY, reserve: 0, pages: { m: 110 } });
    let arrivals = 0;
    const enter = (id: string, tenant: string, pages: number, since?: number) => {
      arrivals += 1;
      const short = since === undefined ? {} : { short: { pages: { m: pages }, since } };
      policy.enter({ id, tenant, arrival: arrivals, pages: { m: pages }, ...short }, 0);
    };
    const starts = (now: number) => policy.admit(now).map(({ id }) => id);
    const report = (...free: [pages: number, readAt: number][]) =>
      policy.report({ m: free.map(([pages, readAt]) => ({ pages, readAt })) });

    enter('alone', 'a', 40, 100);
    report([0, 200]);
    assert.deepEqual(starts(200), ['alone'], 'it starts because nothing else is admitted');
    policy.leave('alone', 200);
    enter('holder', 'a', 4);
    assert.deepEqual(starts(300), ['holder']);
    enter('short', 'b', 40, 1000);
    enter('behind', 'b', 4);
    enter('other', 'c', 4);
    report([60, 1000], [39, 1001]);
    assert.deepEqual(starts(1001), ['other'], 'one report is too old, and the other has too few pages');
    report([40, 1002], [39, 1001]);
    assert.deepEqual(starts(1100), ['short', 'behind']);
    enter('next', 'd', 40, 1050);
    report([60, 3000]);
    assert.deepEqual(starts(3000), [], '`short` may still take 40 of the 60 free pages');
    report([60, 3100]);
    assert.deepEqual(starts(3100), ['next']);
    enter('unheard', 'd', 10, 3100);
    policy.report({});
    assert.deepEqual(starts(3200), ['unheard'], 'it starts because no GPU host reports');
  });

  test('a large head is overtaken a bounded number of times, with or without a reserve', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 20, max: 100 }),
        fc.constantFrom(0, 1 / 16, 1 / 4),
        fc.infiniteStream(fc.integer({ min: 1, max: 3 })),
        (tenants, pages, reserve, sizes) => {
          const policy = new AdmissionPolicy({ slots: 1000, pages: { m: pages }, reserve, starts: MANY });
          const running: string[] = [];
          let arrivals = 0;
          let started = -1;
          const enter = (tenant: string, m: number) => {
            arrivals += 1;
            policy.enter({ id: `${tenant}-${arrivals}`, tenant, arrival: arrivals, pages: { m } }, arrivals);
          };
          const admit = () => {
            const ids = policy.admit(arrivals).map(({ id }) => id);
            running.push(...ids);
            return ids;
          };
          const enterSmall = () => {
            for (let i = 0; i < tenants; i += 1) {
              if (policy.queue(`t${i}`).length < 2) enter(`t${i}`, sizes.next().value);
            }
          };
          for (let i = 0; i < 30; i += 1) {
            enterSmall();
            admit();
          }
          enter('big', pages - 1);
          admit();
          for (let i = 0; started < 0; i += 1) {
            assert.ok(i < 2000, 'the head starves');
            enterSmall();
            policy.leave(running.shift()!, arrivals);
            if (admit().some((id) => id.startsWith('big'))) started = i;
          }
          // Ended before `big` starts: two queued invocations of each tenant, those that overtake it, and the (at most `pages`) running ones.
          assert.ok(
            started <= pages + tenants * 2 + MAX_OVERTAKEN,
            `${started} invocations ended before the large head started`,
          );
        },
      ),
      { seed: 20261121, numRuns: process.env.PIE_TEST_ALL ? 300 : 100 },
    );
  });

  test('a large head of a tenant that holds few pages is overtaken a bounded number of times', () => {
    const policy = new AdmissionPolicy({ slots: 1000, pages: { m: 1200 }, reserve: 0, starts: MANY });
    const running: string[] = [];
    const admit = (now: number) => {
      const ids = policy.admit(now).map(({ id }) => id);
      running.push(...ids);
      return ids;
    };
    policy.enter({ id: 'small of big', tenant: 'big', arrival: 0, pages: { m: 1 } }, 0);
    admit(0);
    // The small invocation runs until the end of the test.
    running.length = 0;
    let arrivals = 0;
    const enterOthers = () => {
      for (let i = 0; i < 12; i += 1) {
        if (policy.queue(`t${i}`).length > 1) continue;
        arrivals += 1;
        policy.enter({ id: `t${i}-${arrivals}`, tenant: `t${i}`, arrival: arrivals, pages: { m: 60 } }, arrivals);
      }
    };
    for (let i = 0; i < 5; i += 1) enterOthers();
    admit(arrivals);
    policy.enter({ id: 'big', tenant: 'big', arrival: arrivals, pages: { m: 110 } }, arrivals);
    for (let ended = 0; ; ended += 1) {
      assert.ok(ended < 100, 'the head starves');
      enterOthers();
      policy.leave(running.shift() ?? '', arrivals);
      if (admit(arrivals).includes('big')) break;
    }
  });

  test('no room is kept for a tenant that holds more than an equal part, so small invocations of other tenants start', () => {
    const policy = new AdmissionPolicy({ slots: 1000, pages: { m: 1200 }, reserve: DEFAULT_RESERVE, starts: MANY });
    for (let i = 0; i < 40; i += 1)
      policy.enter({ id: `large${i}`, tenant: 'large', arrival: i, pages: { m: 100 } }, 0);
    assert.equal(policy.admit(0).length, 11, '11 fit into the 1125 pages outside the reserve');
    for (let i = 0; i < 10 * MAX_OVERTAKEN; i += 1) {
      policy.enter({ id: `small${i}`, tenant: 'small', arrival: 100 + i, pages: { m: 4 } }, i);
      assert.deepEqual(
        policy.admit(i).map(({ id }) => id),
        [`small${i}`],
      );
      policy.leave(`small${i}`, i);
    }
    assert.equal(policy.keepsRoom, false);
  });

  test('under backlog, the slot time of tenants is proportional to their weights, whatever their run times', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ weight: fc.integer({ min: 50, max: 300 }), runMs: fc.integer({ min: 50, max: 2000 }) }), {
          minLength: 2,
          maxLength: 4,
        }),
        fc.integer({ min: 12, max: 40 }),
        (tenants, slots) => {
          const policy = new AdmissionPolicy({ slots, pages: {}, reserve: 0, starts: MANY });
          const backlog = new Map(
            tenants.map(({ runMs }, i) => [`t${i}`, { from: 0, runMs: (n: number) => runMs * (0.5 + (n % 11) / 10) }]),
          );
          for (const [i, { weight }] of tenants.entries()) policy.limit(`t${i}`, { weight });
          const slotMsByTenant = simulate(policy, backlog, 150_000);
          const weights = tenants.reduce((all, { weight }) => all + weight, 0);
          const totalSlotMs = [...slotMsByTenant.values()].reduce((a, b) => a + b, 0);
          for (const [i, { weight }] of tenants.entries()) {
            const share = (slotMsByTenant.get(`t${i}`) ?? 0) / totalSlotMs;
            assert.ok(
              Math.abs(share - weight / weights) < 0.04,
              `${share} of the slot time instead of ${weight / weights}`,
            );
          }
        },
      ),
      {
        seed: 20261122,
        numRuns: process.env.PIE_TEST_ALL ? 40 : 10,
        // The minimum time charged per invocation makes a difference only for short runs.
        examples: [[[50, 2000].map((runMs) => ({ weight: 100, runMs })), 16]],
      },
    );
  });

  test('an idle tenant gathers no credit, and a tenant that ran alone has no debt', () => {
    const policy = new AdmissionPolicy({ slots: 10, pages: {}, reserve: 0, starts: MANY });
    const runMs = () => 100;
    // A tenant that ran alone for a long time and a tenant that comes late get equal parts at once, and from then on.
    const alone = simulate(policy, new Map([['early', { from: 0, runMs }]]), 60_000);
    assert.ok((alone.get('early') ?? 0) > 590_000, 'nearly all of the 600000 slot-ms');
    const sharedPolicy = new AdmissionPolicy({ slots: 10, pages: {}, reserve: 0, starts: MANY });
    const slotMsByTenant = simulate(
      sharedPolicy,
      new Map([
        ['early', { from: 0, runMs }],
        ['late', { from: 50_000, runMs }],
      ]),
      60_000,
    );
    const late = slotMsByTenant.get('late') ?? 0;
    assert.ok(Math.abs(late - 50_000) < 2000, `${late} of 100000 slot-ms since the late tenant came`);
  });

  test('more tenants than slots fill all slots, with or without a reserve', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), fc.constantFrom(0, 1 / 16, 1 / 4), (slots, reserve) => {
        const policy = new AdmissionPolicy({ slots, pages: { m: slots }, reserve, starts: MANY });
        for (let i = 0; i <= slots; i += 1) {
          policy.enter({ id: `${i}`, tenant: `t${i}`, arrival: i, pages: { m: 1 } }, 0);
        }
        assert.equal(policy.admit(0).length, slots);
      }),
      { seed: 20261123, numRuns: 100 },
    );
  });

  test('on the way to runtimes a tenant keeps its order, except for latency targets, and at most `starts` others pass an invocation', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.array(anyOrder(6), { minLength: 60, maxLength: 150, size: 'max' }),
        (starts, orders) => {
          const player = new Player({ slots: 64, pages: {}, reserve: 1 / 4, starts });
          const admitted: string[] = [];
          const passedBy = new Map<string, Set<string>>();
          for (const order of orders) {
            if (order.kind === 'resize' || order.kind === 'return' || order.kind === 'short') continue;
            const step = player.play(order);
            admitted.push(...(step?.admitted ?? []));
            const way = step?.onTheirWay ?? [];
            for (const [at, id] of way.entries()) {
              for (const ahead of way.slice(0, at)) {
                if (admitted.indexOf(ahead) < admitted.indexOf(id)) continue;
                const [passing, passed] = [player.admitted.get(ahead), player.admitted.get(id)];
                assert.ok(passing?.tenant !== passed?.tenant || (passing?.latency && !passed?.latency));
                passedBy.set(id, (passedBy.get(id) ?? new Set()).add(ahead));
              }
            }
          }
          for (const others of passedBy.values()) assert.ok(others.size <= starts);
        },
      ),
      { seed: 20261124, numRuns: 500 },
    );
  });

  test('runtimes fetch one job of each newcomer, in order, before a flood that was admitted earlier', () => {
    const policy = new AdmissionPolicy({ slots: 256, pages: {}, reserve: DEFAULT_RESERVE, starts: 10 });
    for (let i = 0; i < 100; i += 1) policy.enter({ id: `f${i}`, tenant: 'flood', arrival: i, pages: {} }, 0);
    // The first call admits 8 while the flood holds few slots (half of the reserve of 16), then 10 (`starts`) others. The second admits 10 others.
    for (const { id } of policy.admit(0)) policy.begin(id);
    policy.admit(0);
    for (const id of policy.onTheirWay.slice(0, 2)) policy.begin(id);
    for (const tenant of ['a', 'b']) policy.enter({ id: tenant, tenant, arrival: 100, pages: {} }, 0);
    policy.admit(0);
    assert.deepEqual(policy.onTheirWay.slice(0, 3), ['a', 'b', 'f20']);
  });

  test('a tenant that holds much starts beside a stream of short invocations of 40 tenants', () => {
    const policy = new AdmissionPolicy({ slots: 1024, pages: {}, reserve: DEFAULT_RESERVE, starts: 8 });
    for (let i = 0; i < 200; i += 1) policy.enter({ id: `large${i}`, tenant: 'large', arrival: i, pages: {} }, 0);
    while (policy.admitted < 60) for (const { id } of policy.admit(0)) policy.begin(id);
    const running: string[] = [];
    let next = 0;
    let largeStarts = 0;
    for (let ms = 1; ms <= 100; ms += 1) {
      for (let i = 0; i < 40; i += 1) {
        policy.enter({ id: `s${next}`, tenant: `small${i}`, arrival: 1000 + next, pages: {} }, ms);
        next += 1;
      }
      largeStarts += policy.admit(ms).filter(({ tenant }) => tenant === 'large').length;
      for (const id of policy.onTheirWay.slice(0, 4)) {
        policy.begin(id);
        if (id.startsWith('s')) running.push(id);
      }
      for (const id of running.splice(0)) policy.leave(id, ms);
    }
    assert.ok(largeStarts >= 8, `${largeStarts} of the large tenant started`);
  });

  test('while runtimes lag, the pace limits tenants with more than a few slots, and other tenants start at once', () => {
    const policy = new AdmissionPolicy({ slots: 1024, pages: {}, reserve: DEFAULT_RESERVE, starts: MANY });
    for (let i = 0; i < 2000; i += 1) policy.enter({ id: `f${i}`, tenant: 'flood', arrival: i, pages: {} }, 0);
    const admit = (now: number) => policy.admit(now).map(({ id }) => id);
    const running = admit(0);
    assert.equal(running.length, 960, 'all slots outside the reserve of 64');
    policy.resize({ slots: 1024, pace: 16, pages: {}, reserve: DEFAULT_RESERVE, starts: MANY });
    for (let i = 0; i < 32; i += 1) {
      policy.enter({ id: `n${i}`, tenant: 'newcomer', arrival: 3000 + i, pages: {} }, 1);
      assert.deepEqual(admit(1), [`n${i}`]);
    }
    policy.enter({ id: 'n32', tenant: 'newcomer', arrival: 3032, pages: {} }, 1);
    assert.deepEqual(admit(1), [], 'the newcomer already holds 32 slots, half of the reserve');
    for (const id of running) policy.leave(id, 2);
    assert.equal(admit(2).length, 32, 'the flood now holds few slots');
    for (let i = 0; i < 32; i += 1) policy.leave(`n${i}`, 3);
    assert.deepEqual(admit(3), ['n32'], 'the flood alone holds more than the pace');
  });

  test('the reserve lets a newcomer start at once beside a flood', () => {
    const pages = { m: 1024 };
    const policy = new AdmissionPolicy({ slots: 256, pages, reserve: DEFAULT_RESERVE, starts: MANY });
    for (let i = 0; i < 2000; i += 1) policy.enter({ id: `f${i}`, tenant: 'flood', arrival: i, pages: { m: 4 } }, 0);
    const flood = policy.admit(0);
    assert.equal(flood.length, 240, 'all slots outside the reserve of 16');
    const running = flood.map(({ id }) => id);
    for (let second = 1; second <= 60; second += 1) {
      const id = `n${second}`;
      policy.enter({ id, tenant: 'newcomer', arrival: 2000 + second, pages: { m: 4 } }, second * 1000);
      assert.deepEqual(
        policy.admit(second * 1000).map((demand) => demand.id),
        [id],
      );
      // Each invocation of the newcomer runs for four seconds; the flood goes on behind it.
      if (second > 4) policy.leave(`n${second - 4}`, second * 1000);
      policy.admit(second * 1000);
      policy.leave(running.shift()!, second * 1000 + 1);
      running.push(...policy.admit(second * 1000 + 1).map((demand) => demand.id));
    }
  });

  test('a head of a tenant within its share starts although another tenant has admitted the whole pool', () => {
    const policy = new AdmissionPolicy({ slots: 100, pages: { m: 100, [MEMORY]: 100 }, reserve: 0, starts: MANY });
    const enter = (id: string, tenant: string, pages: Pages): string[] => {
      policy.enter({ id, tenant, arrival: Number(id), pages }, 0);
      return policy.admit(0).map((demand) => demand.id);
    };
    assert.deepEqual(enter('1', 'hoarder', { m: 60 }), ['1']);
    assert.deepEqual(enter('2', 'hoarder', { m: 40 }), ['2']);
    assert.deepEqual(enter('3', 'small', { m: 50 }), ['3'], 'half of the pool is the share of each of two tenants');
    assert.deepEqual(enter('4', 'small', { m: 1 }), [], 'beyond its share, a head needs room');
    assert.deepEqual(enter('5', 'third', { m: 34 }), [], 'more than a third of the pool');
    assert.deepEqual(enter('6', 'fourth', { m: 25 }), ['6']);
    policy.enter({ id: '0', tenant: 'fifth', arrival: 0, pages: { [MEMORY]: 101 } }, 0);
    assert.deepEqual(
      policy.admit(0).map(({ id }) => id),
      ['0'],
      'no other invocation uses memory',
    );
    assert.deepEqual(enter('7', 'sixth', { [MEMORY]: 1 }), [], 'runtime memory cannot be taken back');
  });

  test('tenants without pages of a model, or with pages of another one, take no part in its shares', () => {
    const policy = new AdmissionPolicy({ slots: 100, pages: { m: 100, n: 100 }, reserve: 0, starts: MANY });
    const enter = (id: number, tenant: string, pages: Pages): boolean => {
      policy.enter({ id: String(id), tenant, arrival: id, pages }, 0);
      return policy.admit(0).length === 1;
    };
    for (let i = 0; i < 30; i++) assert.ok(enter(i, `sleeper ${i}`, i % 2 ? { n: 3 } : {}));
    assert.ok(enter(30, 'worker', { m: 100 }));
    assert.ok(enter(31, 'newcomer', { m: 50 }), 'half of the pool');
    assert.ok(!enter(32, 'newcomer', { m: 1 }), 'beyond its share, a head needs room');
    assert.ok(enter(33, 'third', { m: 33 }));
    for (let i = 0; i < 30; i++) policy.leave(String(i), 0);
    assert.ok(!enter(34, 'fourth', { m: 34 }), 'more than a third');
  });

  test('an invocation that ended for lack of memory starts again within its share, whatever the reports say', () => {
    const policy = new AdmissionPolicy({ slots: 100, pages: { m: 100 }, reserve: 0, starts: MANY });
    policy.report({ m: [{ pages: 0, readAt: 5 }] });
    policy.enter({ id: '1', tenant: 'hoarder', arrival: 1, pages: { m: 100 } }, 0);
    policy.enter({ id: '2', tenant: 'small', arrival: 2, pages: { m: 20 }, short: { pages: { m: 20 }, since: 1 } }, 0);
    assert.deepEqual(
      policy.admit(10).map(({ id }) => id),
      ['1', '2'],
    );
  });
});
