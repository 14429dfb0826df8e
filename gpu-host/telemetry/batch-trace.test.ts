import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import type { DeviceClient } from '../protocol/client.ts';
import { must, NONE, range, samplingStep, startTestHost, type TestHost } from '../testing/host.ts';
import { MAX_LINKS, MAX_SPANS } from './batch-trace.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const TRACEPARENT = `00-${TRACE_ID}-b7ad6b7169203331-01`;

async function tracedHost(pageCount = 64) {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  const host = await startTestHost({ pageCount, host: { tracer: provider.getTracer('test') } });
  return { host, spans: () => exporter.getFinishedSpans() };
}

async function guest(host: TestHost, id: string, traceparent?: string) {
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id, maxPages: 64, arrival: 1, ...(traceparent && { traceparent }) });
  const queue = inferlet.createQueue('tiny');
  return { inferlet, queue, pages: must(inferlet.allocatePages(queue, 2)) };
}

type Guest = { readonly inferlet: DeviceClient; readonly queue: number; readonly pages: Uint32Array };

const step = ({ inferlet, queue, pages }: Guest, from: number, count: number) =>
  inferlet.ask(queue, samplingStep(range(1, count + 1), from, pages));

test('the span of a batch is a child of the span that the inferlet has set; calls of an inferlet without a span make none', async () => {
  const { host, spans } = await tracedHost();
  await using _ = host;
  const traced = await guest(host, 'traced', TRACEPARENT);
  must(await step(traced, 0, 3));
  assert.equal(spans().length, 0, 'no span is set yet');
  traced.inferlet.setSpan(0xa, 0xb);
  must(await step(traced, 3, 3));
  traced.inferlet.setSpan(0xc, 0xd);
  must(await step(traced, 6, 1));
  traced.inferlet.setSpan(0, 0);
  must(await step(traced, 7, 1));
  assert.deepEqual(
    spans().map((span) => [span.name, span.parentSpanContext?.spanId, span.spanContext().traceId === TRACE_ID]),
    [
      ['batch_prefill', '0000000a0000000b', true],
      ['sample', '0000000a0000000b', true],
      ['batch_decode', '0000000c0000000d', true],
      ['sample', '0000000c0000000d', true],
    ],
  );
  const [prefill] = spans();
  assert.deepEqual(
    ['gen_ai.request.model', 'pie.batch.size', 'pie.batch.tokens', 'pie.call.tokens', 'pie.batch.padding'].map(
      (name) => prefill?.attributes[name],
    ),
    ['tiny', 1, 3, 3, 0],
  );
  // An inferlet that was opened without a trace has no spans, whatever span its calls name.
  const untraced = await guest(host, 'untraced');
  untraced.inferlet.setSpan(1, 2);
  must(await step(untraced, 0, 3));
  assert.equal(spans().length, 4);
});

test('a span has at most `MAX_LINKS` links, and an inferlet at most `MAX_SPANS` spans', async () => {
  const { host, spans } = await tracedHost(256);
  await using _ = host;
  const guests = await Promise.all(Array.from({ length: MAX_LINKS + 10 }, (_, i) => guest(host, `g${i}`, TRACEPARENT)));
  for (const { inferlet } of guests) inferlet.setSpan(1, 2);
  for (let round = 0; round < 3; round++) await Promise.all(guests.map((one) => step(one, round, 1)));
  const links = spans().map((span) => span.links.length);
  assert.ok(Math.max(...links) > 1 && Math.max(...links) <= MAX_LINKS);
  const [one] = guests;
  assert.ok(one);
  const alone = () => step({ ...one, pages: NONE }, 3, 1);
  // Each step makes two spans: of its batch, and of its sample.
  for (let i = 0; i < MAX_SPANS; i += 2) must(await alone());
  const before = spans().length;
  must(await alone());
  assert.equal(spans().length, before, 'past the bound, a step is computed untraced');
  assert.equal(spans().filter(({ attributes }) => attributes['pie.spans.truncated']).length, 1);
});
