import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { TokenGrant } from '../quotas/exceeded.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { SPARE_TOKENS, type TokenAsk } from './grants.ts';
import { type CountedQuota, type QuotaWindow, spanNumber } from './names.ts';
import { renewedGrant, roomOf, spareOf, type TokenRoom } from './testing/renewed-grant.ts';

const TENANT = 'acme';
const FUNCTIONS = ['story', 'poem'] as const;
const NOTE = { author: 'test', reason: '' };
const MINUTE_MS = 60_000;
/** `LATE_MS` and `SEARCH_MS` of limits.lua. */
const [LATE_MS, SEARCH_MS] = [60_000, 1000];
const RESULT = { event: 'result', data: '{"output":null}' } as const;

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

interface Limit {
  readonly quota: CountedQuota;
  readonly window: QuotaWindow;
  readonly function: string | null;
  limit: number;
}

/** A running attempt, as its runtime knows it. */
interface Running {
  readonly id: string;
  readonly function: string;
  readonly epoch: number;
  readonly isChild: boolean;
  ceiling: number;
  /** Tokens of calls that were sent, and of those the reported ones. */
  charged: number;
  reported: number;
  seq: number;
}

/** Usage that becomes known after the end of an attempt. */
interface LateUsage {
  readonly id: string;
  readonly epoch: number;
  /** Tokens that the end reported, the late ones beyond them, and those that the end kept granted. */
  readonly reported: number;
  readonly used: number;
  readonly kept: number;
}

interface Grant {
  tokens: number;
  readonly function: string;
  /** End of a grant for late usage, ms since the epoch; null while the attempt runs. */
  endsAt: number | null;
  /** True when Redis has lost the invocation's record. */
  isLost: boolean;
}

const act = fc.record({
  what: fc.constantFrom(
    ...(['begin', 'begin', 'child', 'use', 'use', 'use', 'report', 'report', 'report', 'report', 'repeat'] as const),
    ...(['finish', 'late', 'settle', 'fail', 'requeue', 'lose', 'limit', 'wait', 'window'] as const),
  ),
  pick: fc.nat(),
  tokens: fc.nat({ max: 400 }),
  more: fc.nat({ max: 200 }),
});
type Act = typeof act extends fc.Arbitrary<infer T> ? T : never;

/** A usage of which quotas count this many tokens. */
function usageOf(charged: number): { inputTokens: number; cachedTokens: number; outputTokens: number } {
  const outputTokens = Math.floor(charged / 3);
  return { inputTokens: 2 * charged - outputTokens, cachedTokens: charged, outputTokens };
}

/** Plays a history on Redis and on a model of the grants, and compares the two after each act. */
class World {
  now = Date.UTC(2026, 9, 30, 23, 57, 0);
  readonly runtimes: readonly Scheduler[];
  readonly limits: Limit[] = [
    { quota: 'tokens-per-day', window: 'day', function: null, limit: 3000 },
    { quota: 'tokens-per-minute', window: 'minute', function: null, limit: 900 },
    { quota: 'tokens-per-day', window: 'day', function: 'poem', limit: 700 },
  ];
  readonly #running: Running[] = [];
  readonly #waiting: { readonly id: string; readonly function: string }[] = [];
  readonly #late: LateUsage[] = [];
  readonly #grants = new Map<string, Grant>();
  /** Charged tokens by window, window number and function ('' for the tenant). */
  readonly #used = new Map<string, number>();
  /** The largest `used + granted` that each limit allows: its number, or what was there when it was lowered. */
  readonly #allowed = new Map<Limit, number>();
  /** Reported tokens by invocation and epoch. */
  readonly #counted = new Map<string, number>();
  #checkedAt = 0;
  #childCount = 0;

  constructor() {
    const options = { clock: () => this.now };
    const first = openTestScheduler(redis, options);
    // A second runtime's scheduler, on the same keys.
    this.runtimes = [first, openTestScheduler(redis, { ...options, prefix: first.store.keys.prefix })];
  }

  async open(): Promise<void> {
    for (const { quota, function: fn, limit } of this.limits) await this.#setLimit(quota, fn, limit);
  }

  async close(): Promise<void> {
    for (const runtime of this.runtimes) await runtime.close();
  }

  async play({ what, pick, tokens, more }: Act): Promise<void> {
    const { invocations } = this.#runtime(pick);
    const running = this.#running[pick % Math.max(1, this.#running.length)];
    switch (what) {
      case 'begin':
        return this.#begin(pick);
      case 'child':
        return running && !running.isChild ? this.#child(running, pick) : undefined;
      case 'use':
        if (running) running.charged = Math.min(running.ceiling, running.charged + tokens);
        return;
      case 'report':
      case 'repeat': {
        if (!running) return;
        running.reported += Math.min(more, running.charged - running.reported);
        const keep = pick % 3 === 0 ? running.charged : Math.max(running.charged, running.ceiling);
        const need = Math.max(keep, running.charged + (pick % 2) * tokens);
        const ask = pick % 5 === 0 ? null : { keep, need, want: need + (pick % 7) * 100 };
        // A repeated call must end in the same state.
        for (let times = what === 'repeat' ? 2 : 1; times > 0; times--) await this.#report(running, ask, pick);
        return;
      }
      case 'finish':
      case 'late': {
        if (!running) return;
        this.#forget(running);
        const kept = what === 'late' ? Math.min(more, running.charged - running.reported) : 0;
        this.#countUse(running, running.charged - kept);
        const { id, epoch, seq, reported } = running;
        await invocations.finish(id, epoch, seq + 1, RESULT, usageOf(reported), seq, null, [], seq, kept);
        this.#return(id, kept);
        if (kept > 0) this.#late.push({ id, epoch, reported, used: Math.min(tokens, kept), kept });
        return;
      }
      case 'settle': {
        const late = this.#late.shift();
        const grant = late && this.#grants.get(late.id);
        // Usage that comes after the end of its grant may exceed a limit.
        if (!grant) return;
        const { id, epoch, reported, used, kept } = late;
        await invocations.settle({ id, tenant: TENANT }, epoch, usageOf(reported + used), kept);
        this.#use(grant.function, used);
        this.#return(id, 0);
        return;
      }
      case 'fail':
        if (!running) return;
        this.#forget(running);
        await invocations.fail(running.id, 'runtime-lost', 'lost');
        this.#return(running.id, 0);
        return;
      case 'requeue': {
        if (!running || running.isChild) return;
        this.#forget(running);
        this.#countUse(running, running.charged);
        const usage = usageOf(running.reported);
        const outcome = await invocations.requeue(running.id, running.epoch, running.seq + 1, 'again', usage);
        if (outcome === 'requeued') this.#waiting.push(running);
        else await invocations.fail(running.id, 'terminated', 'no attempts left');
        this.#return(running.id, 0);
        return;
      }
      case 'lose': {
        // Redis loses the record of a running attempt, as after a crash of its machine.
        if (!running || running.isChild || pick % 3 > 0) return;
        this.#forget(running);
        const { store } = this.runtimes[0] as Scheduler;
        await store.redis.del(store.keys.invocation(running.id));
        const grant = this.#grants.get(running.id);
        if (grant) grant.isLost = true;
        return;
      }
      case 'limit': {
        const limit = this.limits[pick % this.limits.length] as Limit;
        limit.limit = Math.max(0, limit.limit + (more - 100) * 5);
        this.#allowed.set(limit, this.#taken(limit));
        await this.#setLimit(limit.quota, limit.function, limit.limit);
        return;
      }
      case 'wait':
        this.now += tokens * 10;
        return;
      case 'window':
        this.now = (Math.floor(this.now / MINUTE_MS) + 1) * MINUTE_MS + (pick % 3);
        return;
    }
  }

  /** Compares Redis with the model, and checks each limit. */
  async check(): Promise<void> {
    const { store, quotas } = this.runtimes[0] as Scheduler;
    const stored = await store.redis.hgetall(store.keys.tokenGrants(TENANT));
    const tokensOf = (text: string) => Number(text.split(' ')[1]);
    const grants = Object.entries(stored).filter(([field]) => field.startsWith('i:'));
    assert.deepEqual(
      Object.fromEntries(grants.map(([field, text]) => [field.slice(2), tokensOf(text)])),
      Object.fromEntries([...this.#grants].map(([id, { tokens }]) => [id, tokens])),
    );
    assert.equal(Number(stored['#'] ?? 0), this.#grants.size);
    for (const fn of [null, ...FUNCTIONS])
      assert.equal(Number(stored[fn === null ? '*' : `f:${fn}`] ?? 0), this.#grantedTo(fn), `the sum of ${fn}`);
    for (const limit of this.limits) {
      const [taken, before] = [this.#taken(limit), this.#allowed.get(limit) ?? 0];
      assert.ok(taken <= Math.max(limit.limit, before), `${limit.quota} ${limit.function}: ${taken} of ${limit.limit}`);
      this.#allowed.set(limit, taken);
      const states = await quotas.status(TENANT, limit.function);
      const state = states.find(({ quota, function: fn }) => quota === limit.quota && fn === limit.function);
      assert.deepEqual([state?.limit, state?.used], [limit.limit, this.#usedOf(limit)]);
    }
  }

  /** Ends all attempts; then nothing may be granted. */
  async end(): Promise<void> {
    const end = { pick: 0, tokens: 0, more: 0 };
    while (this.#running.length > 0) await this.play({ ...end, what: 'finish' });
    while (this.#late.length > 0) await this.play({ ...end, what: 'settle' });
    await this.check();
    const { store } = this.runtimes[0] as Scheduler;
    const lost = [...this.#grants.values()].filter(({ isLost, endsAt }) => isLost || endsAt !== null);
    assert.equal(this.#grants.size, lost.length);
    // A need that finds no room drops the grants of lost attempts.
    for (const limit of this.limits) {
      limit.limit = this.#usedOf(limit) + this.#grantedTo(limit.function);
      await this.#setLimit(limit.quota, limit.function, limit.limit);
    }
    this.now += LATE_MS + SEARCH_MS;
    await this.#begin(0);
    const [last] = this.#running;
    const room = Math.min(
      ...this.limits.filter((each) => this.#binds(each, 'story')).map((each) => each.limit - this.#usedOf(each)),
    );
    if (last && room > 0) {
      const { tokens } = await this.#report(last, { keep: 0, need: room, want: room }, 0);
      assert.deepEqual([tokens?.ceiling, tokens?.short], [room, null], 'all that is unused can be granted');
    }
    if (last) await this.play({ ...end, what: 'finish' });
    assert.equal(await store.redis.exists(store.keys.tokenGrants(TENANT)), this.#grants.size > 0 ? 1 : 0);
  }

  #runtime(pick: number): Scheduler {
    return this.runtimes[pick % this.runtimes.length] as Scheduler;
  }

  async #begin(pick: number): Promise<void> {
    const runtime = this.#runtime(pick);
    let waiting = pick % 3 === 0 ? undefined : this.#waiting.shift();
    if (!waiting) {
      const fn = FUNCTIONS[pick % FUNCTIONS.length] as string;
      const record = submission({ tenant: TENANT, function: fn, submittedAt: this.now, restartable: pick % 2 === 0 });
      // A used-up quota refuses the request.
      const created = await runtime.invocations.create({ ...record, deadlineMs: 1e9 }).catch(() => null);
      if (!created) return;
      waiting = { id: record.id, function: fn };
    }
    const begun = await beginAttempt(runtime, waiting.id, `r${pick % 2}`, 'token');
    assert.ok('epoch' in begun, JSON.stringify(begun));
    this.#began(waiting.id, waiting.function, begun.epoch, begun.tokenCeiling, begun.nextSeq - 1, false);
    // A repeated call begins the same attempt, with the same grant.
    const again = await runtime.invocations.beginAttempt(waiting.id, `r${pick % 2}`, 'token');
    assert.deepEqual('epoch' in again && [again.epoch, again.tokenCeiling], [begun.epoch, begun.tokenCeiling]);
  }

  async #child(parent: Running, pick: number): Promise<void> {
    const fn = FUNCTIONS[pick % FUNCTIONS.length] as string;
    const id = `child-${++this.#childCount}`;
    const child = {
      id,
      tenant: TENANT,
      function: fn,
      version: 'abc123',
      submittedAt: this.now,
      deadlineMs: 1e9,
      arrival: 1,
    };
    const family = { parent: parent.id, root: parent.id, runtimeId: 'r0', parentEpoch: parent.epoch };
    const begun = await this.#runtime(pick).invocations.beginChild({ ...child, ...family }, 'token');
    if ('epoch' in begun) this.#began(id, fn, begun.epoch, begun.tokenCeiling, begun.nextSeq - 1, true);
  }

  #began(id: string, fn: string, epoch: number, ceiling: number | null, seq: number, isChild: boolean): void {
    this.#grants.set(id, { tokens: 0, function: fn, endsAt: null, isLost: false });
    const expected = Math.min(SPARE_TOKENS, spareOf(roomOf(this.#roomsOf(id, fn)), this.#grants.size));
    assert.equal(ceiling, expected, 'the grant at the beginning');
    (this.#grants.get(id) as Grant).tokens = expected;
    this.#running.push({ id, function: fn, epoch, isChild, ceiling: expected, charged: 0, reported: 0, seq });
  }

  async #report(running: Running, ask: TokenAsk | null, pick: number): Promise<{ readonly tokens: TokenGrant | null }> {
    const { id, epoch, reported, function: fn } = running;
    const grant = this.#grants.get(id) as Grant;
    this.#countUse(running, reported);
    const answer = await this.#runtime(pick).invocations.report(id, epoch, usageOf(reported), ask);
    assert.equal(answer.outcome, 'ok');
    if (ask === null) {
      assert.equal(answer.tokens?.ceiling, reported + grant.tokens);
      return answer;
    }
    const relative = { keep: ask.keep - reported, need: ask.need - reported, want: ask.want - reported };
    const decide = () => renewedGrant(relative, this.#roomsOf(id, fn), this.#grants.size);
    let expected = decide();
    if (expected.outcome === 'waits' && this.#dropOver(id)) expected = decide();
    grant.tokens = expected.tokens;
    running.ceiling = reported + expected.tokens;
    const short = answer.tokens?.short ?? null;
    const outcome = short === null ? 'granted' : short.isHopeless ? 'hopeless' : 'waits';
    assert.deepEqual([answer.tokens?.ceiling, outcome], [running.ceiling, expected.outcome]);
    return answer;
  }

  /** Drops the grants that a search finds. Returns false when the last search was less than `SEARCH_MS` ago. */
  #dropOver(asking: string): boolean {
    if (this.#checkedAt <= this.now && this.now - this.#checkedAt < SEARCH_MS) return false;
    this.#checkedAt = this.now;
    for (const [id, { endsAt, isLost }] of this.#grants) {
      if (id !== asking && (isLost || (endsAt !== null && endsAt <= this.now))) this.#grants.delete(id);
    }
    return true;
  }

  #return(id: string, late: number): void {
    const grant = this.#grants.get(id);
    if (!grant) return;
    if (late > 0) Object.assign(grant, { tokens: late, endsAt: this.now + LATE_MS });
    else this.#grants.delete(id);
    if (this.#grants.size === 0) this.#checkedAt = 0;
  }

  /** Counts an attempt's reported tokens, up to `reported` in all. */
  #countUse(running: Running, reported: number): void {
    const name = `${running.id} ${running.epoch}`;
    const added = reported - (this.#counted.get(name) ?? 0);
    this.#counted.set(name, reported);
    running.reported = reported;
    this.#use(running.function, added);
    const grant = this.#grants.get(running.id);
    if (grant) grant.tokens -= added;
  }

  #use(fn: string, tokens: number): void {
    for (const window of ['minute', 'day'] as const) {
      for (const scope of ['', fn]) {
        const key = `${window} ${spanNumber(window, this.now)} ${scope}`;
        this.#used.set(key, (this.#used.get(key) ?? 0) + tokens);
      }
    }
  }

  #usedOf({ window, function: fn }: Limit): number {
    return this.#used.get(`${window} ${spanNumber(window, this.now)} ${fn ?? ''}`) ?? 0;
  }

  #grantedTo(fn: string | null, except = ''): number {
    let sum = 0;
    for (const [id, grant] of this.#grants)
      if (id !== except && (fn === null || grant.function === fn)) sum += grant.tokens;
    return sum;
  }

  #taken(limit: Limit): number {
    return this.#usedOf(limit) + this.#grantedTo(limit.function);
  }

  #binds(limit: Limit, fn: string): boolean {
    return limit.function === null || limit.function === fn;
  }

  #roomsOf(id: string, fn: string): TokenRoom[] {
    return this.limits
      .filter((each) => this.#binds(each, fn))
      .map((each) => ({ limit: each.limit, used: this.#usedOf(each), granted: this.#grantedTo(each.function, id) }));
  }

  #setLimit(quota: CountedQuota, fn: string | null, limit: number): Promise<unknown> {
    return (this.runtimes[0] as Scheduler).quotas.set(TENANT, { quota, function: fn, limit, until: null }, NOTE);
  }

  #forget(running: Running): void {
    this.#running.splice(this.#running.indexOf(running), 1);
  }
}

test('use and grants together stay within each limit in any history, and nothing stays granted after all attempts', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 40, maxLength: 80, size: 'max' }), async (acts) => {
      const world = new World();
      try {
        await world.open();
        for (const each of acts) {
          await world.play(each);
          await world.check();
        }
        await world.end();
      } finally {
        await world.close();
      }
    }),
    { seed: 20_261_130, numRuns: process.env.PIE_TEST_ALL ? 100 : 12 },
  );
});

test('reports of one turn of the event loop, which reach Redis in one call, do not count a use as a grant, too', async () => {
  const scheduler = openTestScheduler(redis);
  try {
    const { invocations, quotas } = scheduler;
    await quotas.set(TENANT, { quota: 'tokens-per-day', function: null, limit: 40, until: null }, NOTE);
    const begin = async () => {
      const record = submission({ tenant: TENANT });
      await invocations.create(record);
      const begun = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in begun);
      return { id: record.id, epoch: begun.epoch, firstSeq: begun.nextSeq, showsOwnEvents: false };
    };
    const first = await begin();
    await invocations.report(first.id, first.epoch, usageOf(20), { keep: 30, need: 30, want: 30 });
    // The ask comes with an older usage than the events of the same turn.
    const events = [{ event: 'message', data: '""' }] as const;
    const [asked, written] = await Promise.all([
      invocations.report(first.id, first.epoch, usageOf(20), { keep: 30, need: 39, want: 39 }),
      invocations.write({ ...first, events, usage: usageOf(30), ask: null }),
    ]);
    assert.deepEqual(asked.tokens, { ceiling: 39, short: null });
    assert.deepEqual(written.tokens, { ceiling: 39, short: null });
    // Another attempt gets what the first one returns in the same turn.
    await invocations.report(first.id, first.epoch, usageOf(30), { keep: 40, need: 40, want: 40 });
    const second = await begin();
    const [more] = await Promise.all([
      invocations.report(second.id, second.epoch, {}, { keep: 0, need: 4, want: 4 }),
      invocations.report(first.id, first.epoch, usageOf(36), { keep: 36, need: 36, want: 36 }),
    ]);
    assert.deepEqual(more.tokens, { ceiling: 4, short: null });
  } finally {
    await scheduler.close();
  }
});

test('a tenant without a token quota has no grants, and pays for none', async () => {
  const scheduler = openTestScheduler(redis);
  try {
    const { store, invocations } = scheduler;
    await scheduler.quotas.set(TENANT, { quota: 'gpu-ms-per-day', function: null, limit: 1000, until: null }, NOTE);
    const record = submission({ tenant: TENANT });
    await invocations.create(record);
    const begun = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in begun);
    assert.equal(begun.tokenCeiling, null);
    const ask = { keep: 0, need: 10, want: 10 };
    const { tokens } = await invocations.report(record.id, begun.epoch, { outputTokens: 5 }, ask);
    assert.deepEqual(tokens, { ceiling: null, short: null });
    assert.equal(await store.redis.exists(store.keys.tokenGrants(TENANT)), 0);
    assert.equal(await store.redis.hexists(store.keys.invocation(record.id), 'granted'), 0);
  } finally {
    await scheduler.close();
  }
});
