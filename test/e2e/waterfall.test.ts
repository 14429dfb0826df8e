import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { Browser } from '#gateway/testing/browser.ts';
import { deploy } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';

/** Spans that `nodes` records for the input `spans`: five at odd times, one hundred, and one with a name of 200 characters. */
const RECORDED_SPANS = 5 + 100 + 1;
/** Maximum spans of an invocation. */
const MAX_SPANS = 64;
/** Characters that the platform keeps of a name. */
const MAX_NAME_CHARACTERS = 80;

interface Span {
  readonly name: string;
  readonly kind: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly failed?: true;
}

/** Invokes `nodes`. Returns the spans of the invocation and the waterfall of its page. */
async function shown(what: string) {
  const platform = await functionsPlatform();
  let id = '';
  const events = await invoke(
    platform,
    'nodes',
    { what },
    {
      onEvent: ({ event, data }) => {
        if (event === 'start') id = data.invocation;
        if (event === 'message') void platform.fetch(`/v1/invocations/${id}`, { method: 'DELETE' });
      },
    },
  );
  const metric = events.find(({ event }) => event === 'metric');
  assert.ok(metric);
  const { spans = [], moreSpans = 0 } = metric.data as { spans?: readonly Span[]; moreSpans?: number };
  const browser = await new Browser(platform.url).signIn(platform.apiKey);
  const page = await browser.page(`/dashboard/invocations/${id}`);
  const [, list = ''] = /<ol class="waterfall">(.*?)<\/ol>/s.exec(page) ?? [];
  const rows = [...list.matchAll(/<li class="part">(.*?)<\/li>/gs)].flatMap(([, row = '']) => {
    const [, name, label = ''] = /<strong>(.*?)<\/strong>.*?aria-label="(.*?)"/s.exec(row) ?? [];
    return name === undefined ? [] : [{ name, label }];
  });
  return { spans, moreSpans, rows, page, list, end: terminal(events) };
}

const kinds = (spans: readonly Span[]) => spans.map(({ name, kind }) => `${name} ${kind}`).sort();

describe('the waterfall of an invocation', () => {
  before(async () => deploy(await functionsPlatform(), 'nodes'));

  test('shows the nodes of a workflow below its program, in the order of their beginnings', async () => {
    const { spans, rows, list, end, moreSpans } = await shown('workflow');
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    assert.deepEqual(
      kinds(spans),
      [
        'story/prefilling prefilling',
        'story/decoding decoding',
        'story/<b>"tool"& user-defined',
        'story/zero user-defined',
        'story/loop loop',
        'story/loop/next user-defined',
        'story/loop/done user-defined',
        'story/loop/next user-defined',
        'story/loop/done user-defined',
      ].sort(),
    );
    const decoding = spans.find(({ kind }) => kind === 'decoding');
    const tool = spans.find(({ name }) => name.includes('tool'));
    assert.ok(decoding && tool && decoding.fromMs <= tool.fromMs);
    assert.equal(moreSpans, 0);
    assert.equal(rows.length, spans.length);
    assert.deepEqual(
      rows.map(({ name }) => name),
      spans.map(({ name }) => name.replace('<b>"tool"&', '&lt;b&gt;&quot;tool&quot;&amp;')),
    );
    assert.doesNotMatch(list, /failed/);
    assert.ok(list.indexOf('Program') < list.indexOf('story/') && list.lastIndexOf('story/') < list.indexOf('CPU'));
  });

  test('marks failed nodes by the bar and in words', async () => {
    const { spans, rows, list, end } = await shown('fail');
    assert.equal(end?.event, 'error');
    assert.deepEqual(
      spans.filter(({ failed }) => failed).map(({ name }) => name),
      ['story/<b>"tool"&'],
    );
    assert.equal(rows.filter(({ label }) => label.endsWith(', failed')).length, 1);
    assert.equal(list.match(/<svg class="bar bad"/g)?.length, 1);
    assert.match(list, /<small>user-defined, failed<\/small>/);
  });

  test('marks a node as failed if the invocation was cancelled while the node ran', async () => {
    const { spans, end } = await shown('wait');
    assert.equal(end?.data.code, 'cancelled', JSON.stringify(end?.data));
    assert.deepEqual(
      spans.filter(({ failed }) => failed).map(({ name }) => name),
      ['story/<b>"tool"&'],
    );
  });

  test('shows the operations of an interpreted program', async () => {
    const { spans, end } = await shown('program');
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    assert.ok(spans.some(({ name, kind }) => name === 'read/seen' && kind === 'user-defined'));
  });

  test('shows a limited number of spans of any function, and escapes their names', async () => {
    const { spans, moreSpans, rows, page, list, end } = await shown('spans');
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    const dropped = RECORDED_SPANS - MAX_SPANS;
    assert.deepEqual([spans.length, moreSpans, rows.length], [MAX_SPANS, dropped, MAX_SPANS]);
    assert.deepEqual(
      spans
        .filter(({ failed }) => failed)
        .map(({ name }) => name.length)
        .sort(),
      ['<b>"tool"&0'.length, MAX_NAME_CHARACTERS],
    );
    for (const { fromMs, toMs } of spans) assert.ok(0 <= fromMs && fromMs <= toMs);
    assert.ok(list.includes(`<small>and ${dropped} more</small></li>`), list);
    assert.match(list, /&lt;b&gt;&quot;tool&quot;&amp;0/);
    assert.doesNotMatch(page, /<b>"tool"/);
  });
});
