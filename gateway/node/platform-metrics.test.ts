import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MAX_OWNERS, type MetricFamily, OTHER } from '#infra/telemetry/family.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { platformMetrics, withOthers } from './platform-metrics.ts';

const family = (value: number): MetricFamily => ({
  name: 'pie.tokens',
  unit: '{token}',
  description: 'Tokens.',
  kind: 'counter',
  points: [{ labels: { type: 'input' }, value }],
});

describe('the metrics page', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  test("the page has the gateway's current values and the values that other processes published", async (t) => {
    const scheduler = openTestScheduler(redis);
    t.after(() => scheduler.close());
    let value = 1;
    const page = platformMetrics({
      scheduler,
      process: 'gateway',
      collect: async () => [family(value)],
      public: false,
    });
    await scheduler.metrics.publish('gateway', JSON.stringify([family(0)]));
    await scheduler.metrics.publish('runtime-1', JSON.stringify([family(7)]));
    await scheduler.metrics.publish('runtime-2', 'from another version');
    value = 2;
    const text = await page.text();
    assert.match(
      text,
      /^pie_tokens_total\{type="input",process="gateway"\} 2\npie_tokens_total\{type="input",process="runtime-1"\} 7$/m,
    );
    assert.match(text, /^pie_redis_up\{process="gateway"\} 1$/m);
    assert.ok(!text.includes('runtime-2'));
  });

  test('without Redis, the page has the values of this gateway and reports Redis as down', async () => {
    const scheduler = openTestScheduler(redis, { deadlineMs: 50 });
    await scheduler.close();
    const page = platformMetrics({ scheduler, process: 'gateway', collect: async () => [family(3)], public: true });
    const text = await page.text();
    assert.match(text, /^pie_tokens_total\{type="input",process="gateway"\} 3$/m);
    assert.match(text, /^pie_redis_up\{process="gateway"\} 0$/m);
  });
});

test('withOthers names the busiest tenants and adds up the rest', () => {
  const tenants = Array.from({ length: 1000 }, (_, i) => ({ tenant: `t${i}`, waiting: i, running: 1 }));
  const shown = withOthers(tenants);
  assert.equal(shown.length, MAX_OWNERS + 1);
  assert.equal(shown.at(-1)?.tenant, OTHER);
  assert.ok(shown.some(({ tenant }) => tenant === 't999') && !shown.some(({ tenant }) => tenant === 't1'));
  const sum = (loads: typeof tenants) => loads.reduce((all, { waiting, running }) => all + waiting + running, 0);
  assert.equal(sum(shown), sum(tenants));
  assert.deepEqual(withOthers(tenants.slice(0, 3)), tenants.slice(0, 3));
});
