import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { signedHeaders } from './secrets.ts';
import { askedWait, DeliverySlots, MAX_ATTEMPTS, verdictOn, waitAfter } from './webhooks.ts';

/** `MAX_WAIT_MS` of webhooks.ts. */
const LONGEST_WAIT_MS = 300_000;

test('a tenant never has more concurrent deliveries than allowed, and waiting deliveries get different times', () => {
  const step = fc.record({
    tenant: fc.constantFrom('a', 'b', 'c'),
    enter: fc.boolean(),
    // Deliveries often ask at the same moment.
    ms: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 400 })),
  });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 4 }), fc.array(step, { maxLength: 200, size: 'max' }), (maxActive, steps) => {
      const slots = new DeliverySlots(maxActive);
      const active = new Map<string, number[]>();
      const promised = new Map<string, number>();
      let now = 0;
      for (const { tenant, enter, ms } of steps) {
        now += ms;
        const activeSince = active.get(tenant) ?? [];
        active.set(tenant, activeSince);
        if (!enter) {
          const since = activeSince.shift();
          if (since !== undefined) slots.leave(tenant, now, now - since);
          continue;
        }
        const wait = slots.enter(tenant, now);
        if (wait === 0) activeSince.push(now);
        else {
          assert.equal(activeSince.length, maxActive, 'a delivery waits only when as many as allowed run');
          assert.ok(wait <= LONGEST_WAIT_MS);
          const at = now + wait;
          const isLater = at > (promised.get(tenant) ?? 0);
          assert.ok(wait === LONGEST_WAIT_MS || isLater, 'only the longest wait is given twice');
          promised.set(tenant, at);
        }
        assert.ok(activeSince.length <= maxActive);
      }
      // Later than every time at which a delivery was told to ask again.
      now += 10 ** 9;
      for (const [tenant, mine] of active) {
        for (const since of mine) slots.leave(tenant, now, now - since);
        // A tenant keeps its state when its last delivery ends before a time that was given out. The next end removes the state.
        assert.equal(slots.enter(tenant, now), 0, 'ended deliveries no longer count');
        slots.leave(tenant, now, 0);
      }
      assert.equal(slots.size, 0, 'idle tenants have no state');
    }),
    { numRuns: 200, seed: 3 },
  );
});

test("the waits follow the durations of the tenant's deliveries", () => {
  const slots = new DeliverySlots(1);
  /** The wait of a delivery while another one runs, after 19 deliveries of `tookMs` and one of `lastMs`. */
  const waitAfterDeliveries = (tenant: string, tookMs: number, lastMs = tookMs): number => {
    let now = 0;
    for (let i = 0; i < 20; i++) {
      assert.equal(slots.enter(tenant, now), 0);
      // This refused delivery is given a later time. Until then the tenant's state is kept, and with it the mean duration.
      assert.ok(slots.enter(tenant, now) > 0);
      slots.leave(tenant, now, i < 19 ? tookMs : lastMs);
    }
    now += 1_000_000;
    assert.equal(slots.enter(tenant, now), 0);
    return slots.enter(tenant, now);
  };
  assert.equal(waitAfterDeliveries('fast', 0), 5, 'the shortest spacing');
  const slow = waitAfterDeliveries('slow', 10_000);
  assert.ok(slow > 9500 && slow <= 10_000, `${slow} ms`);
  assert.equal(waitAfterDeliveries('dead', 10 ** 9), LONGEST_WAIT_MS, 'the longest wait');
  const mixed = waitAfterDeliveries('mixed', 0, 10_000);
  assert.ok(mixed > 2900 && mixed < 3100, `one slow delivery counts for three tenths: ${mixed} ms`);
});

test('once the longest wait has passed after an outage, an idle tenant has no state, and waits are short again', () => {
  const slots = new DeliverySlots(1);
  assert.equal(slots.enter('a', 0), 0);
  for (let i = 0; i < 10_000; i++) assert.ok(slots.enter('a', 0) <= LONGEST_WAIT_MS);
  slots.leave('a', LONGEST_WAIT_MS, 50);
  assert.equal(slots.size, 0);
  assert.equal(slots.enter('a', LONGEST_WAIT_MS), 0);
  assert.equal(slots.enter('a', LONGEST_WAIT_MS), 50);
  assert.equal(slots.enter('a', LONGEST_WAIT_MS), 100);
});

test('waiting deliveries ask again as often as running ones end, for any number of concurrent deliveries', () => {
  for (const maxActive of [1, 2, 8]) {
    const slots = new DeliverySlots(maxActive);
    // Before the first delivery ends, a mean duration of 50 ms is assumed.
    for (let i = 0; i < maxActive; i++) assert.equal(slots.enter('a', 0), 0);
    for (let i = 1; i <= 8; i++) assert.equal(slots.enter('a', 0), Math.ceil((i * 50) / maxActive));
  }
});

test('the retries of a delivery span 20 to 24 hours', () => {
  const waits = Array.from({ length: MAX_ATTEMPTS - 1 }, (_, i) => waitAfter(i + 1));
  const hours = waits.reduce((sum, ms) => sum + ms, 0) / 3_600_000;
  assert.ok(hours > 20 && hours < 24, `${hours} h`);
  assert.deepEqual([waits[0], waits[1]], [5000, 10_000]);
});

test('a receiver may ask for a longer wait, in seconds or until a date, but not for a shorter one', () => {
  const now = Date.UTC(1994, 10, 6, 8, 49, 0);
  for (const [header, ms] of [
    ['120', 120_000],
    [' 0 ', 0],
    ['Sun, 06 Nov 1994 08:49:37 GMT', 37_000],
    ['Sunday, 06-Nov-94 08:49:37 GMT', 37_000],
    ['Sun Nov  6 08:49:37 1994', 37_000],
    ['Sun, 06 Nov 1994 08:48:37 GMT', 0],
    ['Sun, 99 Nov 1994 08:49:37 GMT', 0],
    ['1994-11-06T08:49:37Z', 0],
    ['-5', 0],
    ['1.5', 0],
    ['soon', 0],
    ['', 0],
    [undefined, 0],
  ] as const)
    assert.equal(askedWait(header, now), ms, String(header));
  assert.equal(waitAfter(1, 5000, 120_000), 120_000);
  assert.equal(waitAfter(3, 5000, 1000), 20_000);
  assert.equal(waitAfter(1, 5000, askedWait('9999999999', now)), 6 * 3_600_000, 'the longest wait that counts');
});

test('only a 2xx status counts as delivered', () => {
  for (const [answer, verdict] of [
    [{ status: 200 }, 'delivered'],
    [{ status: 299 }, 'delivered'],
    [{ status: 302 }, 'retry'],
    [{ status: 410 }, 'gone'],
    [{ status: 500 }, 'retry'],
    [{ error: 'ECONNREFUSED' }, 'retry'],
  ] as const)
    assert.equal(verdictOn(answer), verdict);
});

/** The example from the specification's reference libraries. */
test('signatures match the example of Standard Webhooks', () => {
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const headers = signedHeaders(secret, 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1_614_265_330_000, '{"test": 2432232314}');
  assert.deepEqual(headers, {
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
});
