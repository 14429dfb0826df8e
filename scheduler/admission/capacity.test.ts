import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { RuntimeLease } from '../runtimes/lease.ts';
import type { RuntimeDescription, RuntimeModel } from '../runtimes/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { hold, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

const ALL = process.env.PIE_TEST_ALL === '1';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

type Offer = Required<Pick<RuntimeDescription, 'accepting' | 'slots'>> & Partial<RuntimeDescription>;

/** Pages of a model on a host. They differ between hosts and models, so that a sum shows which of them it counts. */
const pagesOf = (host: string, name: string) => 10 * host.length + name.length;
const aModel = (name: string, host: string, life: number): RuntimeModel => ({
  name,
  contextLength: 256,
  vocabularySize: 100,
  pageSize: 16,
  pageCount: pagesOf(host, name),
  traits: [],
  ...(host !== '' && { host }),
  hostId: `${host}~${life}`,
});

const anyOffer: fc.Arbitrary<Offer> = fc
  .record(
    {
      slots: fc.nat(9),
      accepting: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
      pace: fc.nat(9),
      starts: fc.nat(9),
      memoryMb: fc.integer({ min: 10_000, max: 20_000 }),
      overcommit: fc.constantFrom(1, 1.5),
      reserve: fc.constantFrom(0, 0.25),
      placement: fc.constantFrom('tenant' as const, 'invocation' as const),
      hosts: fc.uniqueArray(fc.tuple(fc.constantFrom('m', 'n'), fc.constantFrom('', 'a', 'bb', 'ccc'), fc.nat(1)), {
        maxLength: 4,
        selector: String,
      }),
    },
    { requiredKeys: ['slots', 'accepting', 'hosts'] },
  )
  .map(({ hosts, ...offer }) => ({ ...offer, models: hosts.map(([name, host, life]) => aModel(name, host, life)) }));

const anyOrder = fc.record({
  runtime: fc.nat(4),
  offer: fc.oneof({ weight: 6, arbitrary: anyOffer }, { weight: 2, arbitrary: fc.constant(null) }),
  /** The runtime takes another invocation, or the oldest invocation that any runtime holds ends. */
  held: fc.constantFrom('one more', 'one less', 'no change', 'no change', 'no change'),
});

/** Computes the capacity from all descriptions; runtimes that take no jobs must hold no invocations. */
function capacityOf(offers: readonly Offer[]): Record<string, number> {
  const accepting = offers.filter((offer) => offer.accepting);
  const sum = (pick: (offer: Offer) => number) => accepting.reduce((all, offer) => all + pick(offer), 0);
  const overcommit = Math.max(1, ...accepting.map((offer) => offer.overcommit ?? 1));
  const pools = new Map<string, { readonly place: string; readonly pages: number }>();
  for (const { models = [] } of accepting) {
    for (const { name, host, hostId, pageCount } of models) {
      const place = host === undefined ? name : `${name}@${host}`;
      pools.set(`${hostId} ${place}`, { place, pages: pageCount });
    }
  }
  const places: Record<string, number> = {};
  for (const { place, pages } of pools.values()) places[place] = (places[place] ?? 0) + pages;
  return {
    slots: sum(({ slots }) => slots),
    pace: sum(({ slots, pace = slots }) => pace),
    starts: sum(({ starts = 8 }) => starts),
    reserve: Math.max(0, ...accepting.map((offer) => offer.reserve ?? 0)),
    ...Object.fromEntries(
      Object.entries(places).map(([place, pages]) => [`pages:${place}`, Math.floor(pages * overcommit)]),
    ),
    ...(accepting.some(({ memoryMb }) => memoryMb !== undefined) && {
      'pages:#memory': sum(({ memoryMb = 0 }) => memoryMb),
    }),
  };
}

const NUMBERS = /^(slots|pace|starts|reserve|pages:.*)$/;

/** A comparable form of a stored value: lists of hosts are sorted, and JSON is parsed. */
function comparable(field: string, value: string): unknown {
  if (field.startsWith('hosts:')) return JSON.parse(value).sort();
  return field.startsWith('apart:') ? JSON.parse(value) : value;
}

/** Everything that Redis stores about the capacity, in a form in which two readings compare equal. */
async function stored({ store }: Scheduler): Promise<Record<string, unknown>> {
  const { redis, keys } = store;
  const all: Record<string, unknown> = {};
  for (const part of ['capacity', 'offers', 'kinds', 'pools', 'places']) {
    for (const [field, value] of Object.entries(await redis.hgetall(`${keys.admission}:${part}`)))
      all[`${part} ${field}`] = comparable(field, value);
  }
  for (const key of await redis.keys(`${keys.admission}:reporters:*`)) all[key] = await redis.hgetall(key);
  for (const key of await redis.keys(`${keys.admission}:hosts:*`))
    all[key] = (await redis.zrange(key, '0', '-1')).sort();
  return all;
}

test('the capacity after changes of single runtimes equals a new count of all runtimes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyOrder, { minLength: 4, maxLength: 16 }), async (orders) => {
      const scheduler = openTestScheduler(redis);
      const { redis: client, keys } = scheduler.store;
      const leases = new Map<number, RuntimeLease>();
      const offers = new Map<number, Offer>();
      const held: string[] = [];
      try {
        for (const { runtime, offer, held: change } of orders) {
          const lease = leases.get(runtime);
          if (offer === null) {
            await lease?.release();
            leases.delete(runtime);
            offers.delete(runtime);
          } else if (lease === undefined) {
            leases.set(runtime, await scheduler.runtimes.acquire({ name: `r${runtime}`, ...offer }));
            offers.set(runtime, offer);
          } else {
            // Properties that the new offer lacks keep their earlier values.
            await lease.describe(offer);
            offers.set(runtime, { ...offers.get(runtime), ...offer });
          }
          // A runtime that takes no more jobs gets none.
          const holder = offers.get(runtime)?.accepting ? leases.get(runtime) : undefined;
          if (change === 'one more' && holder !== undefined) {
            const { id } = await scheduler.submit(submission({ tenant: 't', expectedPages: { m: 1 } }));
            await hold(scheduler, id, holder.id);
            held.push(id);
          } else if (change === 'one less') {
            const id = held.shift();
            if (id !== undefined) await scheduler.invocations.fail(id, 'internal', 'over');
          }
        }
        const changed = await stored(scheduler);
        // Without `leaving`, admission counts all runtimes anew.
        await client.hdel(`${keys.admission}:capacity`, 'leaving');
        await scheduler.admission.admit();
        assert.deepEqual(changed, await stored(scheduler));
        for (const id of held) await scheduler.invocations.fail(id, 'internal', 'over');
        const numbers = Object.entries(await client.hgetall(`${keys.admission}:capacity`)).filter(([field]) =>
          NUMBERS.test(field),
        );
        assert.deepEqual(
          Object.fromEntries(numbers.map(([field, value]) => [field, Number(value)])),
          capacityOf([...offers.values()]),
        );
      } finally {
        for (const lease of leases.values()) await lease.release();
        await client.flushall();
        await scheduler.close();
      }
    }),
    { seed: 20261125, numRuns: ALL ? 400 : 40 },
  );
});

test('where runtimes differ about the pages of a GPU host, the last description counts', async () => {
  const scheduler = openTestScheduler(redis);
  const pages = async () => (await scheduler.admission.capacity()).models.map((model) => model.pages);
  const offer = (pageCount: number) => ({ slots: 1, accepting: true, models: [{ ...aModel('m', '', 0), pageCount }] });
  const first = await scheduler.runtimes.acquire({ name: 'first', ...offer(100) });
  const second = await scheduler.runtimes.acquire({ name: 'second', ...offer(50) });
  assert.deepEqual(await pages(), [50]);
  await first.describe(offer(70));
  assert.deepEqual(await pages(), [70]);
  await second.release();
  assert.deepEqual(await pages(), [70]);
  await first.release();
  assert.deepEqual(await pages(), []);
  await scheduler.close();
});
