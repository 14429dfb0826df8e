import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { Span } from '#scheduler/invocations/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform } from '../testing/platform.ts';

/** An inferlet that records spans by its input: ordinary ones, too many, with long names, with odd times, before a failure or before a busy loop. */
const RECORDING = `
  import { now, recordSpan, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { send } from 'pie:inferlet/session@0.1.0';

  const long = 'long <b>&"\\u0000\\u202e'.padEnd(1_000_000, '"');

  export async function run(input) {
    const began = now();
    switch (JSON.parse(input)) {
      case 'work':
        await sleep(20).read();
        recordSpan('first', 'search', began, now(), false);
        recordSpan('second', 'decoding', now(), now(), true);
        return '1';
      case 'flood':
        for (let i = 0; i < 10_000; i++) recordSpan('span ' + i, '', began, now(), i < 3);
        return '1';
      case 'names':
        for (let i = 0; i < 100; i++) recordSpan(long, long, began, now(), true);
        return '1';
      case 'times': {
        const times = [0, 1, began - 60_000, began, began + 60_000, 2 ** 40, Number.MAX_SAFE_INTEGER];
        for (const from of times) {
          for (const to of times) recordSpan('span', '', from, to, false);
        }
        return '1';
      }
      case 'throw':
        recordSpan('cause', 'call', began, now(), true);
        throw new Error('on purpose');
      default:
        recordSpan('before', '', began, now(), false);
        send({ tag: 'text', val: 'spins' });
        for (;;);
    }
  }
`;

/** Maximum spans in a `metric` event. */
const MAX_SPANS = 64;
/** The spinning inferlet must not use all of its CPU time before the test cancels it. */
const LIMITS = { memoryMb: 32, cpuMs: 30_000, wallMs: 60_000, pages: 16 };

interface Metric {
  readonly spans?: readonly Span[];
  readonly moreSpans?: number;
}

describe('the spans of an inferlet', () => {
  let platform: RuntimePlatform;
  let version: FunctionVersion;

  before(async () => {
    platform = await RuntimePlatform.start();
    version = await platform.deploy(RECORDING, { limits: LIMITS });
  });
  after(() => platform.stop());

  async function metricOf(id: string) {
    const { events, end } = await platform.transcript(id);
    const metrics = events.filter(({ event }) => event === 'metric');
    assert.equal(metrics.length, 1);
    assert.equal(events.at(-2)?.event, 'metric');
    const { data = '' } = metrics[0] ?? {};
    const record = await platform.scheduler.invocations.get(id);
    const lastedMs = (record?.endedAt ?? 0) - (record?.startedAt ?? 0);
    const { spans = [], moreSpans = 0 } = JSON.parse(data) as Metric;
    for (const { fromMs, toMs } of spans) assert.ok(0 <= fromMs && fromMs <= toMs && toMs <= lastedMs + 1);
    return { spans, moreSpans, end, characters: data.length };
  }
  const runAndRead = async (action: string) => metricOf(await platform.submit(version, action));

  it('are in the event `metric`, in order, with their times and failures', async () => {
    const { spans, moreSpans, end } = await runAndRead('work');
    assert.equal(end.event, 'result');
    assert.deepEqual(
      spans.map(({ fromMs: _, toMs: __, ...span }) => span),
      [
        { name: 'first', kind: 'search' },
        { name: 'second', kind: 'decoding', failed: true },
      ],
    );
    const [first, second] = spans;
    // The inferlet slept 20 ms; a timer may be 1 ms early.
    assert.ok(first && second && first.toMs - first.fromMs >= 19 && second.fromMs >= first.toMs);
    assert.equal(moreSpans, 0);
  });

  it('are in the metric also when the inferlet fails or is killed', async () => {
    const { spans, end } = await runAndRead('throw');
    assert.equal(end.event, 'error');
    assert.deepEqual(
      spans.map(({ name, failed }) => [name, failed]),
      [['cause', true]],
    );
    const id = await platform.submit(version, 'spin');
    await eventually(
      async () => (await platform.scheduler.events.read(id, 0)).some(({ event }) => event === 'message'),
      'it spins',
    );
    await platform.scheduler.cancel(id, 'the test cancels it');
    const killed = await metricOf(id);
    assert.equal(killed.end.data.code, 'cancelled');
    assert.deepEqual(
      killed.spans.map(({ name }) => name),
      ['before'],
    );
  });

  it('are bounded in number, and the others are counted', async () => {
    const { spans, moreSpans, characters } = await runAndRead('flood');
    assert.equal(spans.length, MAX_SPANS);
    assert.equal(moreSpans, 10_000 - MAX_SPANS);
    assert.equal(spans.filter(({ failed }) => failed).length, 3);
    assert.ok(characters < 8192, `${characters}`);
  });

  it('have short names of one line, whatever the inferlet calls them', async () => {
    const { spans, moreSpans, characters, end } = await runAndRead('names');
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    assert.deepEqual([spans.length, moreSpans], [MAX_SPANS, 100 - MAX_SPANS]);
    // Names are cut to 80 characters and kinds to 32. The NUL and the direction override become U+FFFD.
    assert.equal(spans[0]?.name, 'long <b>&"\ufffd\ufffd'.padEnd(79, '"').concat('…'));
    assert.equal(spans[0]?.kind, 'long <b>&"\ufffd\ufffd'.padEnd(31, '"').concat('…'));
    // The metric is too large for the write of the terminal event, which takes along at most 16 KiB of events.
    assert.ok(characters > 16_384 && characters < 20_480, `${characters}`);
  });

  it('lie within the attempt, whatever the inferlet says about their times', async () => {
    const { spans, end } = await runAndRead('times');
    assert.equal(end.event, 'result', JSON.stringify(end.data));
    // One span for each pair of the seven times.
    assert.equal(spans.length, 49);
  });
});
