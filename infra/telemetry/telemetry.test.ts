import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { MAX_OWNERS, type MetricFamily, OTHER, parseFamilies } from './family.ts';
import { Meters } from './meters.ts';
import { diagnosticsLogger } from './otlp.ts';
import { prometheusName, prometheusText } from './prometheus.ts';
import { vitalFamilies, watchVitals } from './vitals.ts';

const newMeters = (extra: readonly MetricFamily[] = []) => new Meters(resourceFromAttributes({}), () => extra);

const familyOf = async (meters: Meters, name: string) => {
  const family = (await meters.collect()).find((known) => known.name === name);
  assert.ok(family, name);
  return family;
};

test('the number of series of a metric is bounded for any number of tenants and functions', async () => {
  const meters = newMeters();
  const counter = meters.meter.createCounter('pie.invocations');
  const histogram = meters.meter.createHistogram('pie.invocation.duration', { unit: 's' });
  const codes = ['ok', 'guest-error', 'terminated'];
  for (let i = 0; i < 5000; i++) {
    const owner = { tenant: `tenant-${i % 500}`, function: `function-${i}` };
    counter.add(1, { ...owner, code: codes[i % 3] as string });
    histogram.record(1, owner);
  }
  for (const [name, bound] of [
    ['pie.invocations', (MAX_OWNERS + 1) * codes.length],
    ['pie.invocation.duration', MAX_OWNERS + 1],
  ] as const) {
    const { points } = await familyOf(meters, name);
    assert.ok(points.length <= bound, `${name} has ${points.length} series`);
    assert.ok(points.some(({ labels }) => labels.tenant === OTHER && labels.function === OTHER));
  }
  // No count is lost: combinations beyond the bound count as `other`.
  const { points } = await familyOf(meters, 'pie.invocations');
  assert.equal(
    points.reduce((sum, point) => sum + ('value' in point ? point.value : 0), 0),
    5000,
  );
  // The first combinations keep their own series.
  assert.ok(points.some(({ labels }) => labels.function === 'function-0' && labels.tenant === 'tenant-0'));
});

test('a gauge drops series that are no longer observed, and a counter keeps them', async () => {
  const meters = newMeters();
  const gauge = meters.meter.createObservableGauge('depth');
  const counter = meters.meter.createCounter('starts');
  let tenants = ['a', 'b'];
  gauge.addCallback((result) => {
    for (const tenant of tenants) result.observe(1, { tenant });
  });
  counter.add(1, { model: 'm' });
  const pointsOf = async (name: string) =>
    (await meters.collect()).find((family) => family.name === name)?.points ?? [];
  assert.equal((await pointsOf('depth')).length, 2);
  tenants = ['b'];
  assert.deepEqual(
    (await pointsOf('depth')).map(({ labels }) => labels.tenant),
    ['b'],
  );
  tenants = [];
  assert.deepEqual(await pointsOf('depth'), []);
  assert.equal((await pointsOf('starts')).length, 1);
});

test('labels with few values are kept beyond the bound on owners', async () => {
  const meters = newMeters();
  const starts = meters.meter.createCounter('starts');
  for (let i = 0; i < MAX_OWNERS + 50; i++) starts.add(1, { model: `m${i % 3}` });
  assert.equal((await familyOf(meters, 'starts')).points.length, 3);
});

test('the page of all processes has each name once, cumulative buckets and escaped text', () => {
  const histogram: MetricFamily = {
    name: 'pie.batch.wait',
    unit: 's',
    description: 'Waits.',
    kind: 'histogram',
    points: [{ labels: { model: 'm' }, count: 6, sum: 0.5, bounds: [0.1, 1], counts: [1, 2, 3] }],
  };
  const counter = (value: number): MetricFamily => ({
    name: 'pie.rejections',
    unit: '{request}',
    description: 'Two\nlines.',
    kind: 'counter',
    points: [{ labels: { code: 'a"b\\c\n' }, value }],
  });
  const text = prometheusText([
    { process: 'gateway', families: [counter(2)] },
    { process: 'runtime-1', families: [counter(3), histogram] },
  ]);
  assert.equal(
    text,
    `# HELP pie_rejections_total Two\\nlines.
# TYPE pie_rejections_total counter
pie_rejections_total{code="a\\"b\\\\c\\n",process="gateway"} 2
pie_rejections_total{code="a\\"b\\\\c\\n",process="runtime-1"} 3
# HELP pie_batch_wait_seconds Waits.
# TYPE pie_batch_wait_seconds histogram
pie_batch_wait_seconds_bucket{model="m",process="runtime-1",le="0.1"} 1
pie_batch_wait_seconds_bucket{model="m",process="runtime-1",le="1"} 3
pie_batch_wait_seconds_bucket{model="m",process="runtime-1",le="+Inf"} 6
pie_batch_wait_seconds_sum{model="m",process="runtime-1"} 0.5
pie_batch_wait_seconds_count{model="m",process="runtime-1"} 6
`,
  );
});

test('Prometheus names contain their unit once', () => {
  const name = (name: string, unit: string, kind: MetricFamily['kind']) => prometheusName({ name, unit, kind });
  assert.equal(name('process.cpu.time', 's', 'counter'), 'process_cpu_time_seconds_total');
  assert.equal(name('process.memory.usage', 'By', 'gauge'), 'process_memory_usage_bytes');
  assert.equal(name('pie.batch.padding', '1', 'gauge'), 'pie_batch_padding_ratio');
  assert.equal(name('pie.kv.pages', '{page}', 'gauge'), 'pie_kv_pages');
});

test('parseFamilies reads what a process publishes and refuses anything else', async () => {
  const meters = newMeters(vitalFamilies(watchVitals()()));
  meters.meter.createCounter('pie.tokens', { unit: '{token}' }).add(3, { type: 'input' });
  const families = await meters.collect();
  assert.deepEqual(parseFamilies(JSON.stringify(families)), families);
  for (const text of [
    '',
    '{}',
    '[{"name":"x"}]',
    '[{"name":"X y","unit":"","description":"","kind":"gauge","points":[]}]',
  ])
    assert.equal(parseFamilies(text), null, text);
});

test('vitals have memory, CPU time and uptime of the process', () => {
  const vitals = watchVitals()();
  assert.ok(vitals.residentBytes > vitals.heapBytes && vitals.cpuSeconds > 0 && vitals.uptimeSeconds > 0);
  assert.equal(vitals.restarts, 0);
});

test('export errors are logged at most once a minute', () => {
  let nowMs = 0;
  const log = new CollectedLog();
  const logger = diagnosticsLogger(log, () => nowMs);
  for (; nowMs < 120_000; nowMs += 1000) logger.error('the export failed:', new Error('ECONNREFUSED'));
  logger.debug('below the level');
  assert.deepEqual(
    log.records.map(({ fields }) => fields.why),
    new Array(2).fill('the export failed: ECONNREFUSED'),
  );
});
