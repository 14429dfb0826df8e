import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Meter, metrics, SpanStatusCode, trace } from '@opentelemetry/api';
import {
  AlwaysOnSampler,
  InMemorySpanExporter,
  ParentBasedSampler,
  type ReadableSpan,
  SimpleSpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { TEST_LIMITS } from '#scheduler/testing/fixture.ts';
import { RunObserver } from './run-observer.ts';
import { MAX_STEPS, type StepQueue } from './step-trace.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const METER = metrics.getMeter('none');

const START = { startedAt: Date.now(), clock: Date.now, attempt: 1, runtimeId: 'r' };

const job = (traceparent?: string): InvocationJob => ({
  id: 'inv-1',
  tenant: 't',
  function: 'story',
  version: 'v1',
  input: '{}',
  arrival: 1,
  deadlineMs: 1000,
  submittedAt: Date.now() - 50,
  limits: TEST_LIMITS,
  ...(traceparent !== undefined && { traceparent }),
});

function begin(traceparent: string | undefined, start = START, observedJob = job(traceparent)) {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({
    sampler: new ParentBasedSampler({ root: new AlwaysOnSampler() }),
    spanProcessors: [new SimpleSpanProcessor({ exporter })],
  });
  const observer = new RunObserver({ meter: METER, tracer: provider.getTracer('test') });
  const run = observer.begin(observedJob, start);
  /** Span ids that the GPU host got, each as two 32-bit words. */
  const sentIds: [number, number][] = [];
  const queue = (): StepQueue => ({ name: 'm', device: { setSpan: (high, low) => void sentIds.push([high, low]) } });
  return { run, queue, sentIds, spans: () => exporter.getFinishedSpans() };
}

/** Lists the spans as `<parent> > <name>` in the order of their ends. The parent is `-` when it is not in the list. */
function tree(spans: readonly ReadableSpan[]): string[] {
  const names = new Map(spans.map((span) => [span.spanContext().spanId, span.name]));
  return spans.map((span) => `${names.get(span.parentSpanContext?.spanId ?? '') ?? '-'} > ${span.name}`);
}

const measured = () => ({
  times: { firstMessageAt: 0, firstTokenAt: 0, lastTokenAt: 0 },
  model: 'm',
  gpuHost: 'gpu-host-2',
});
const answer = Promise.resolve(ok(1));

test("decode steps are `forward` spans in a `generate` span, which their queue's next fill ends", async () => {
  const { run, queue, spans, sentIds } = begin(`00-${TRACE_ID}-b7ad6b7169203331-01`);
  run.launched({ coldStart: true, timings: { buildMs: 1, compileMs: 2, instantiateMs: 3 } }, Date.now());
  const { steps, traceparent } = run.beginInferlet(measured);
  assert.ok(steps);
  assert.match(traceparent ?? '', new RegExp(`^00-${TRACE_ID}-[0-9a-f]{16}-01$`));
  const [one, other] = [queue(), queue()];
  await steps.begin(one, 5, true)?.until(answer);
  await steps.begin(one, 1, true)?.until(answer);
  await steps.begin(one, 1, true)?.until(answer);
  await steps.begin(other, 1, true)?.until(answer);
  // A step of one input without an output is a fill.
  await steps.begin(one, 1, false)?.until(answer);
  // Embed, forward and sample as separate calls.
  steps.forward(other, 1, true);
  await steps.sample(other, answer);
  run.returned();
  run.ended('ok', '', { inputTokens: 5, outputTokens: 4, cachedTokens: 0 });
  assert.deepEqual(tree(spans()), [
    'invocation > admission wait',
    'invocation > instance',
    'inferlet > fill',
    'generate > forward',
    'generate > forward',
    'generate > forward',
    'inferlet > generate',
    'inferlet > fill',
    'forward > sample',
    'generate > forward',
    'inferlet > generate',
    'invocation > inferlet',
    '- > invocation',
  ]);
  const all = spans();
  const invocation = all.at(-1);
  assert.equal(invocation?.parentSpanContext?.spanId, 'b7ad6b7169203331');
  assert.deepEqual(
    ['faas.name', 'faas.coldstart', 'pie.tenant', 'gen_ai.usage.output_tokens'].map(
      (name) => invocation?.attributes[name],
    ),
    ['story', true, 't', 4],
  );
  assert.deepEqual(
    all.filter(({ name }) => name === 'generate').map(({ attributes }) => attributes['gen_ai.usage.output_tokens']),
    [2, 2],
  );
  // The GPU host got the ids of exactly the spans that its batches are children of.
  const hex = sentIds.map((words) => words.map((word) => word.toString(16).padStart(8, '0')).join(''));
  const batchParents = all
    .filter(({ name }) => name === 'fill' || name === 'forward')
    .map((span) => span.spanContext().spanId);
  assert.deepEqual(hex.toSorted(), batchParents.toSorted());
});

test('a fused run is one `forward` span with all of its tokens, and its `generate` span ends with the run', ({
  mock,
}) => {
  mock.timers.enable({ apis: ['Date'], now: Date.now() });
  const { run, queue, spans } = begin(undefined);
  const { steps } = run.beginInferlet(measured);
  const step = steps?.begin(queue(), 1, true);
  step?.took(3);
  step?.took(4);
  step?.end();
  const endedMs = Date.now();
  mock.timers.tick(600_000);
  run.ended('terminated', 'memory', {});
  const [forward, generate] = spans().filter(({ name }) => name === 'forward' || name === 'generate');
  assert.equal(forward?.attributes['pie.tokens'], 7);
  assert.equal(generate?.attributes['gen_ai.usage.output_tokens'], 7);
  // The span ends with the step, not 600 s later with the inferlet.
  assert.ok(Math.abs((generate?.endTime[0] ?? 0) * 1000 - endedMs) < 300_000);
  const invocation = spans().at(-1);
  assert.deepEqual([invocation?.attributes['error.type'], invocation?.status.message], ['terminated', 'memory']);
});

test('a run that ends with a question to a person is no error, and its trace has no text of the question', () => {
  const { run, spans } = begin(undefined);
  run.beginInferlet(measured);
  run.ended('waiting', 'Is 4711 the right PIN?', {});
  const { status, attributes } = spans().at(-1) ?? assert.fail();
  assert.deepEqual([status, attributes['error.type']], [{ code: SpanStatusCode.UNSET }, undefined]);
});

test('only runs that end their invocations have a duration', () => {
  const recorded: string[] = [];
  const meter: Meter = Object.assign(Object.create(METER) as Meter, {
    createHistogram: (name: string) => ({ record: () => void recorded.push(name) }),
  });
  const observer = new RunObserver({ meter, tracer: undefined });
  const durations = (code: string) => {
    recorded.length = 0;
    observer.begin(job(), START).ended(code, '', {});
    return recorded.filter((name) => name === 'pie.invocation.duration').length;
  };
  assert.deepEqual(['ok', 'trap', 'requeued', 'waiting'].map(durations), [1, 1, 0, 0]);
});

test("durations use the platform's clock, which may differ from the clock of this machine", () => {
  const recorded: [string, number][] = [];
  const meter: Meter = Object.assign(Object.create(METER) as Meter, {
    createHistogram: (name: string) => ({ record: (seconds: number) => void recorded.push([name, seconds]) }),
  });
  const submittedAt = 1_000_000_000;
  const clock = () => submittedAt + 60_000;
  const run = new RunObserver({ meter, tracer: undefined }).begin({ ...job(), submittedAt }, { ...START, clock });
  run.beginInferlet(() => ({
    ...measured(),
    times: { firstMessageAt: performance.now(), firstTokenAt: 0, lastTokenAt: 0 },
  }));
  run.ended('ok', '', {});
  const seconds = Object.fromEntries(recorded);
  assert.equal(seconds['pie.invocation.duration'], 60);
  assert.equal(Math.round(seconds['gen_ai.server.time_to_first_token'] ?? 0), 60);
});

test("the spans of a run use this machine's clock, although the run's start is a time of the platform's clock", () => {
  const clock = () => Date.now() - 3_600_000;
  const { run, spans } = begin(
    undefined,
    { ...START, clock, startedAt: clock() },
    { ...job(), submittedAt: clock() - 50 },
  );
  run.launched({ coldStart: false, timings: { buildMs: 0, compileMs: 0, instantiateMs: 0 } }, Date.now());
  run.beginInferlet(measured);
  run.ended('ok', '', {});
  assert.equal(spans().length, 4);
  for (const { name, duration } of spans()) assert.ok(duration[0] >= 0 && duration[0] < 600, `${name} ${duration}`);
});

test('open spans end when the inferlet ends', () => {
  const { run, queue, spans } = begin(undefined);
  const { steps } = run.beginInferlet(measured);
  const [one, other] = [queue(), queue()];
  steps?.begin(one, 1, true)?.took(2);
  steps?.forward(other, 7, false);
  run.returned();
  assert.deepEqual(tree(spans()), [
    '- > admission wait',
    'generate > forward',
    'inferlet > fill',
    'inferlet > generate',
    '- > inferlet',
  ]);
});

test('steps beyond the bound make no spans and are counted', async () => {
  const { run, queue, spans, sentIds } = begin(undefined);
  const { steps } = run.beginInferlet(measured);
  const only = queue();
  for (let i = 0; i < MAX_STEPS + 10; i++) await steps?.begin(only, 1, true)?.until(answer);
  run.ended('ok', '', {});
  assert.equal(spans().filter(({ name }) => name === 'forward').length, MAX_STEPS);
  assert.equal(spans().find(({ name }) => name === 'inferlet')?.attributes['pie.steps.dropped'], 10);
  // The GPU host makes no spans for these steps either.
  assert.deepEqual(sentIds.at(-1), [0, 0]);
});

test('an unsampled trace, and a missing tracer, make no spans', () => {
  const unsampled = `00-${TRACE_ID}-b7ad6b7169203331-00`;
  const { run, spans } = begin(unsampled);
  assert.deepEqual(run.beginInferlet(measured), { traceparent: unsampled, steps: undefined });
  run.ended('ok', '', {});
  assert.equal(spans().length, 0);
  const off = new RunObserver({ meter: METER, tracer: undefined }).begin(job(), START);
  assert.deepEqual(off.beginInferlet(measured), { traceparent: undefined, steps: undefined });
  assert.equal(trace.getActiveSpan(), undefined);
});
