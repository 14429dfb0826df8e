import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { parse } from 'yaml';
import { deployWith } from '#test/harness/deploy.ts';
import { readEvents, terminal } from '#test/harness/events.ts';
import { Platform, ROOT, until } from '#test/harness/platform.ts';
import { type CollectedSpan, Collector } from './collector.ts';
import { readExpression } from './promql.ts';

let collector: Collector;
let platform: Platform;

before(async () => {
  collector = await Collector.start();
  platform = await Platform.start({
    functions: ['text-completion'],
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
  });
  await deployWith(platform, 'counted', {});
});
after(async () => {
  await platform?.[Symbol.asyncDispose]();
  await collector?.[Symbol.asyncDispose]();
});

let traces = 0;
const newTraceId = (): string => (++traces).toString(16).padStart(32, 'a');
/** Tolerance for span times, which come from clocks with millisecond resolution. */
const CLOCK_MS = 3;
const CLIENT_SPAN = 'b7ad6b7169203331';

/** Invokes a function in a client's trace; returns the trace context from the gateway's answer. */
async function invokeTraced(name: string, input: unknown, traceparent: string): Promise<string> {
  const response = await platform.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream', traceparent },
    body: JSON.stringify(input),
  });
  const end = terminal(await readEvents(response));
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  return response.headers.get('traceparent') ?? '';
}

/** Waits until a trace has every parent that its spans name, and `hasAll` holds. Returns the spans. */
async function traceOf(
  traceId: string,
  hasAll: (spans: readonly CollectedSpan[]) => boolean,
): Promise<CollectedSpan[]> {
  const isComplete = () => {
    const spans = collector.trace(traceId);
    const ids = new Set(spans.map(({ spanId }) => spanId).concat(CLIENT_SPAN));
    return spans.every(({ parentSpanId }) => ids.has(parentSpanId)) && hasAll(spans);
  };
  await until(`the spans of trace ${traceId}`, isComplete).catch((cause) => {
    throw new Error(`the trace has ${collector.trace(traceId).map(({ name }) => name)}`, { cause });
  });
  return collector.trace(traceId);
}

const spansNamed = (spans: readonly CollectedSpan[], name: string) => spans.filter((span) => span.name === name);
/** The span of this name, of which there must be exactly one. */
const onlySpan = (spans: readonly CollectedSpan[], name: string): CollectedSpan => {
  const [found, ...more] = spansNamed(spans, name);
  assert.ok(found && more.length === 0, `${more.length + (found ? 1 : 0)} spans ${name}`);
  return found;
};
const SERVER_SPAN = 'POST /v1/functions/:reference/invocations';

test('an invocation is one trace of nested spans from the request to the batch', async () => {
  const traceId = newTraceId();
  const tokens = 6;
  const input = { mark: 'nested', tokens };
  const returnedContext = await invokeTraced('counted', input, `00-${traceId}-${CLIENT_SPAN}-01`);
  const spans = await traceOf(
    traceId,
    (all) => spansNamed(all, 'batch_decode').length >= tokens - 1 && spansNamed(all, 'sample').length >= tokens,
  );

  const server = onlySpan(spans, SERVER_SPAN);
  assert.equal(server.parentSpanId, CLIENT_SPAN);
  assert.equal(returnedContext, `00-${traceId}-${server.spanId}-01`);
  const invocation = onlySpan(spans, 'invocation');
  const inferlet = onlySpan(spans, 'inferlet');
  const fill = onlySpan(spans, 'fill');
  const generate = onlySpan(spans, 'generate');
  assert.equal(invocation.parentSpanId, server.spanId);
  for (const name of ['admission wait', 'instance', 'inferlet'])
    assert.equal(onlySpan(spans, name).parentSpanId, invocation.spanId, name);
  for (const span of [fill, generate]) assert.equal(span.parentSpanId, inferlet.spanId);
  for (const span of spansNamed(spans, 'batch_prefill')) assert.equal(span.parentSpanId, fill.spanId);
  // The prefill gives the first token. One forward gives each other token.
  const forwards = spansNamed(spans, 'forward');
  assert.equal(forwards.length, tokens - 1);
  for (const forward of forwards) assert.equal(forward.parentSpanId, generate.spanId);
  const steps = new Set(forwards.map(({ spanId }) => spanId));
  for (const span of spansNamed(spans, 'batch_decode')) assert.ok(steps.has(span.parentSpanId));
  assert.equal(spansNamed(spans, 'batch_prefill').length, 1);
  assert.equal(spansNamed(spans, 'batch_decode').length, forwards.length);
  for (const sample of spansNamed(spans, 'sample'))
    assert.ok(steps.has(sample.parentSpanId) || sample.parentSpanId === fill.spanId);
  assert.equal(spansNamed(spans, 'sample').length, tokens);

  // Spans also nest in time.
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  for (const span of spans) {
    assert.ok(span.endMs >= span.startMs, span.name);
    const parent = byId.get(span.parentSpanId);
    if (!parent) continue;
    assert.ok(span.startMs >= parent.startMs - CLOCK_MS, `${span.name} in ${parent.name}`);
    // The invocation's span may outlast its parent: the client has its answer before the runtime learns that Redis has stored the end.
    if (span !== invocation) assert.ok(span.endMs <= parent.endMs + CLOCK_MS, `${span.name} in ${parent.name}`);
  }
  const service = (name: string) => spansNamed(spans, name)[0]?.service;
  assert.deepEqual([SERVER_SPAN, 'invocation', 'batch_decode'].map(service), [
    'pie-gateway',
    'pie-runtime',
    'pie-gpu-host',
  ]);
  const attributes = ['faas.name', 'pie.tenant', 'gen_ai.request.model', 'pie.gpu_host', 'gen_ai.usage.output_tokens'];
  assert.deepEqual(
    attributes.map((name) => invocation.attributes[name]),
    ['counted', 'default', 'stories15m', 'gpu-host-1', tokens],
  );
  assert.equal(typeof invocation.attributes['faas.coldstart'], 'boolean');
  const [decode] = spansNamed(spans, 'batch_decode');
  assert.equal(decode?.attributes['pie.device'], 'CPU');
  assert.deepEqual([decode?.attributes['pie.batch.size'], decode?.attributes['pie.batch.tokens']], [1, 1]);
  assert.ok(Number(decode?.attributes['pie.call.wait_ms']) >= 0);
});

test('tokens that the device decodes ahead of the inferlet share one forward span below the generate span', async () => {
  const traceId = newTraceId();
  const maxTokens = 6;
  const input = { prompt: 'Once upon a time', maxTokens, temperature: 0 };
  await invokeTraced('text-completion', input, `00-${traceId}-${CLIENT_SPAN}-01`);
  const spans = await traceOf(traceId, (all) => spansNamed(all, 'sample').length === maxTokens);
  const forward = onlySpan(spans, 'forward');
  assert.equal(forward.parentSpanId, onlySpan(spans, 'generate').spanId);
  // The prefill gives the first token.
  assert.equal(forward.attributes['pie.tokens'], maxTokens - 1);
  const decodes = spansNamed(spans, 'batch_decode');
  assert.equal(decodes.length, maxTokens - 1);
  for (const span of decodes) assert.equal(span.parentSpanId, forward.spanId);
});

test('spans of a child are below the inferlet span of its parent', async () => {
  const traceId = newTraceId();
  await invokeTraced('counted', { mark: 'traced', tokens: 2, child: true }, `00-${traceId}-${CLIENT_SPAN}-01`);
  const spans = await traceOf(traceId, (all) => spansNamed(all, 'invocation').length === 2);
  const [child] = spans.filter(({ attributes }) => attributes['pie.parent'] !== undefined);
  const parent = spansNamed(spans, 'invocation').find((span) => span !== child);
  const inferlet = spansNamed(spans, 'inferlet').find((span) => span.parentSpanId === parent?.spanId);
  assert.ok(child && parent && inferlet);
  assert.equal(child.parentSpanId, inferlet.spanId);
  assert.equal(child.attributes['pie.parent'], parent.attributes['faas.invocation_id']);
});

test('decode spans of one batch link to each other', async () => {
  const maxTokens = 48;
  const input = { prompt: 'The little dog', maxTokens, temperature: 0 };
  let all: CollectedSpan[] = [];
  let linked: CollectedSpan[] = [];
  // Concurrent invocations share a batch unless the machine is overloaded. In that case, try again with new invocations.
  await until('two invocations share a batch', async () => {
    const traceIds = [newTraceId(), newTraceId(), newTraceId(), newTraceId()];
    await Promise.all(traceIds.map((id) => invokeTraced('text-completion', input, `00-${id}-${CLIENT_SPAN}-01`)));
    all = [];
    const hasDecodes = (spans: readonly CollectedSpan[]) => spansNamed(spans, 'batch_decode').length === maxTokens - 1;
    for (const id of traceIds) all.push(...(await traceOf(id, hasDecodes)));
    linked = spansNamed(all, 'batch_decode').filter(({ links }) => links.length > 0);
    const traceOfSpan = new Map(all.map(({ spanId, traceId }) => [spanId, traceId]));
    return linked.some(({ traceId, links }) => links.some(({ spanId }) => traceOfSpan.get(spanId) !== traceId));
  });
  for (const span of linked) {
    assert.ok(Number(span.attributes['pie.batch.size']) > span.links.length);
    for (const link of span.links) {
      const other = all.find(({ spanId }) => spanId === link.spanId);
      assert.ok(
        other && other.spanId !== span.spanId && Math.abs(other.startMs - span.startMs) < CLOCK_MS,
        'a link to another span of the same batch',
      );
    }
  }
});

test('an unsampled client trace is not recorded, and its context is passed on', async () => {
  const traceId = newTraceId();
  const input = { prompt: 'Once', maxTokens: 2, temperature: 0 };
  const returnedContext = await invokeTraced('text-completion', input, `00-${traceId}-${CLIENT_SPAN}-00`);
  assert.match(returnedContext, new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
  // When the spans of a later trace have arrived, those of the first trace would have arrived, too.
  const recorded = newTraceId();
  await invokeTraced('text-completion', input, `00-${recorded}-${CLIENT_SPAN}-01`);
  await traceOf(recorded, (spans) => spansNamed(spans, 'batch_decode').length === 1);
  assert.deepEqual(collector.trace(traceId), []);
});

/** Metric names of `/metrics`, each with its labels and their values. */
type Names = ReadonlyMap<string, ReadonlyMap<string, ReadonlySet<string>>>;

/** Parses a page of `/metrics` and checks the form of each line. `kinds` holds the type of each metric. */
function pageOf(text: string): { names: Names; kinds: Map<string, string> } {
  const names = new Map<string, Map<string, Set<string>>>();
  const kinds = new Map<string, string>();
  for (const line of text.trimEnd().split('\n')) {
    const type = /^# TYPE ([a-z_0-9]+) (counter|gauge|histogram)$/.exec(line);
    if (type) {
      assert.ok(!kinds.has(type[1]!), `${type[1]} twice`);
      kinds.set(type[1]!, type[2]!);
    } else if (!line.startsWith('# HELP ')) {
      const series = /^([a-z_][a-z0-9_]*)\{((?:[a-z_0-9]+="(?:[^"\\\n]|\\.)*",?)*)\} (-?[0-9.e+-]+|\+Inf)$/.exec(line);
      assert.ok(series, line);
      const labels = names.get(series[1]!) ?? new Map<string, Set<string>>();
      names.set(series[1]!, labels);
      for (const [, label, value] of series[2]!.matchAll(/([a-z_0-9]+)="((?:[^"\\\n]|\\.)*)"/g))
        labels.set(label!, (labels.get(label!) ?? new Set()).add(value!));
    }
  }
  return { names, kinds };
}

test('/metrics shows all processes on one page, to operators only', async () => {
  const withKey = (key: string) => fetch(`${platform.url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal((await fetch(`${platform.url}/metrics`)).status, 401);
  const created = await platform.fetch('/v1/keys', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'no operator', scopes: ['admin'] }),
  });
  const { apiKey } = (await created.json()) as { apiKey: string };
  assert.equal((await withKey(apiKey)).status, 403);
  const parts = [
    ...['gateway', 'runtime-1', 'gpu-host-1'].map(
      (process) => new RegExp(`process_memory_usage_bytes\\{process="${process}"\\} [0-9]{7,}`),
    ),
    /^pie_gpu_host_model_info\{host="gpu-host-1",model="stories15m",backend="onnx",precision="float32",device="CPU",device_index="",process="gpu-host-1"\} 1$/m,
    /pie_invocations_total\{[^}]*process="runtime-1"\}/,
    /^gen_ai_server_time_to_first_token_seconds_count\{/m,
    /pie_rejections_total\{code="unauthorized",tenant="",process="gateway"\} [1-9]/,
  ];
  let text = '';
  // Each process publishes its metrics every few seconds, at its own times.
  await until('all processes have published metrics', async () => {
    const response = await platform.fetch('/metrics');
    assert.equal(response.status, 200, await response.clone().text());
    assert.match(response.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
    text = await response.text();
    return parts.every((part) => part.test(text));
  }).catch((cause) => {
    throw new Error(`missing: ${parts.filter((part) => !part.test(text)).join(', ')}`, { cause });
  });
  const { names, kinds } = pageOf(text);
  assert.equal(kinds.get('gen_ai_server_time_to_first_token_seconds'), 'histogram');
  assert.ok(names.get('pie_invocations_total')?.has('code'));
});

/** Metrics that only hosts with a GPU have, which this platform lacks. `host-metrics.test.ts` checks their labels. */
const GPU_METRICS = new Set(['pie_device_memory_bytes']);

/** Labels with a fixed set of values, all of which are on the page at any time. */
const CLOSED = new Set(['state', 'outcome']);

/** Checks that the page has an expression's metrics, labels, and values of closed labels. Returns the labels that its result may have. */
function checkExpression(expr: string, names: Names): Set<string> {
  // Grafana replaces its variables like this.
  const { selectors, groups } = readExpression(expr.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, '.*'));
  assert.ok(selectors.length > 0, expr);
  const possible = new Set<string>();
  for (const { metric, matchers } of selectors) {
    if (GPU_METRICS.has(metric)) {
      for (const label of groups) possible.add(label);
      continue;
    }
    const labels = names.get(metric);
    assert.ok(labels, `${metric} is not on /metrics: ${expr}`);
    for (const label of labels.keys()) possible.add(label);
    for (const { label, values } of matchers) {
      assert.ok(labels.has(label), `${metric} has no label ${label}: ${expr}`);
      if (CLOSED.has(label)) for (const value of values) assert.ok(labels.get(label)?.has(value), `${value}: ${expr}`);
    }
  }
  for (const label of groups) assert.ok(possible.has(label), `no metric has the label ${label}: ${expr}`);
  return groups.length > 0 ? new Set(groups) : possible;
}

test('the Grafana dashboard and the alerts use existing metrics and labels', async (t) => {
  // This invocation keeps running, since `/metrics` has no series for a tenant without invocations.
  const running = await platform.fetch('/v1/functions/counted/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    body: JSON.stringify({ mark: 'listening', listenAt: 0 }),
  });
  const { id } = (await running.json()) as { id: string };
  t.after(() => platform.fetch(`/v1/invocations/${id}`, { method: 'DELETE' }));
  const dashboard = JSON.parse(readFileSync(path.join(ROOT, 'infra/grafana/pie.json'), 'utf8'));
  assert.ok(dashboard.schemaVersion >= 36 && dashboard.uid && dashboard.title);
  const ids = dashboard.panels.map(({ id }: { id: number }) => id);
  assert.equal(new Set(ids).size, ids.length);
  const alerts = parse(readFileSync(path.join(ROOT, 'infra/grafana/alerts.yaml'), 'utf8')) as Alerts;
  const rules = alerts.groups.flatMap((group) => group.rules);
  assert.ok(rules.length > 15);
  assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
  let fault: unknown;
  // Each process publishes its metrics every few seconds, at its own times.
  await until('all metrics of the dashboard and the alerts are on the page', async () => {
    const { names } = pageOf(await (await platform.fetch('/metrics')).text());
    try {
      checkDashboard(dashboard, names);
      checkAlerts(rules, names);
      return true;
    } catch (error) {
      fault = error;
      return false;
    }
  }).catch(() => {
    throw fault;
  });
});

// biome-ignore lint/suspicious/noExplicitAny: Grafana's own format
function checkDashboard(dashboard: any, names: Names): void {
  let expressions = 0;
  for (const panel of dashboard.panels) {
    const { x, w } = panel.gridPos;
    assert.ok(x >= 0 && x + w <= 24, panel.title);
    for (const { expr, legendFormat } of panel.targets ?? []) {
      expressions++;
      const labels = checkExpression(expr, names);
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g))
        assert.ok(labels.has(label!), `${label} of "${panel.title}": ${[...labels]}`);
    }
  }
  assert.ok(expressions > 30);
  const variables = dashboard.templating.list.filter(({ type }: { type: string }) => type === 'query');
  assert.ok(variables.length > 0);
  for (const { definition } of variables) {
    const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(definition) ?? [];
    assert.ok(names.get(metric ?? '')?.has(label ?? ''), definition);
  }
}

function checkAlerts(rules: Alerts['groups'][number]['rules'], names: Names): void {
  for (const { alert, expr, labels: alertLabels, annotations, for: duration = '0m' } of rules) {
    const labels = checkExpression(expr, names);
    // The codes `requeued` and `waiting` do not end their invocation, so a matcher must list both of them or neither.
    for (const { matchers } of readExpression(expr).selectors)
      for (const { label, values } of matchers)
        if (label === 'code') assert.equal(values.includes('requeued'), values.includes('waiting'), alert);
    assert.match(alert, /^Pie[A-Za-z]+$/);
    assert.match(duration, /^\d+m$/, alert);
    assert.ok(['warning', 'critical'].includes(alertLabels.severity ?? ''), alert);
    assert.ok(annotations.summary && annotations.description, alert);
    for (const [, label] of Object.values(annotations)
      .join(' ')
      .matchAll(/\{\{ \$labels\.(\w+) \}\}/g))
      assert.ok(labels.has(label!), `${alert} has no label ${label}: ${[...labels]}`);
  }
}

interface Alerts {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly for?: string;
      readonly labels: Readonly<Record<string, string>>;
      readonly annotations: Readonly<Record<string, string>>;
    }[];
  }[];
}

test('the OTLP collector gets metrics of every process', async () => {
  const has = (service: string, name: string) =>
    collector.metrics.some((metric) => metric.service === service && metric.name === name && metric.points > 0);
  await until(
    'metrics by OTLP',
    () =>
      has('pie-gateway', 'http.server.request.duration') &&
      has('pie-runtime', 'gen_ai.server.time_to_first_token') &&
      has('pie-runtime', 'pie.invocations') &&
      has('pie-gpu-host', 'pie.batch.size') &&
      has('pie-gpu-host', 'process.memory.usage'),
  );
});

test('a restarted process reports one restart on /metrics', async () => {
  const restarted = platform.restarted('gpu-host-1');
  process.kill(platform.pid('gpu-host-1'), 'SIGKILL');
  await restarted;
  const restartLine = /^pie_process_restarts_total\{process="gpu-host-1"\} 1$/m;
  await until('the restart is on the page', async () =>
    restartLine.test(await (await platform.fetch('/metrics')).text()),
  );
});
