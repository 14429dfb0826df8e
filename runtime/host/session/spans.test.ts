import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { codePoint } from '../../testing/code-point.ts';
import { Redactor } from './redact.ts';
import { cutSpan, Spans } from './session-state.ts';

const clock = (start: number) => {
  let time = start;
  return {
    now: () => time,
    pass: (ms: number) => {
      time += ms;
    },
  };
};

describe('spans', () => {
  it('reports the recorded spans in order of their beginnings, with times since the start', () => {
    const { now, pass } = clock(5000);
    const spans = new Spans(now);
    assert.deepEqual(spans.report(), {});
    pass(100);
    spans.add('answer', 'decoding', 5020, 5100, true);
    spans.add('search', 'searching', 5000, 5020, false);
    spans.add('loop', 'loop', 5020, 5100, false);
    spans.add('inner', '', 5020, 5030, false);
    assert.deepEqual(spans.report(), {
      spans: [
        { name: 'search', kind: 'searching', fromMs: 0, toMs: 20 },
        { name: 'answer', kind: 'decoding', fromMs: 20, toMs: 100, failed: true },
        { name: 'loop', kind: 'loop', fromMs: 20, toMs: 100 },
        { name: 'inner', kind: '', fromMs: 20, toMs: 30 },
      ],
    });
  });

  it('keeps the longest spans and those that failed, and counts the others', () => {
    const { now, pass } = clock(0);
    const spans = new Spans(now);
    pass(10_000);
    spans.add('failed', '', 7, 7, true);
    // 1009 is prime, so all 1,000 lengths differ. Their order is mixed.
    for (let i = 1; i <= 1000; i++) spans.add(`span ${i}`, '', 0, (i * 7919) % 1009, false);
    spans.add('outer', '', 0, 10_000, false);
    const { spans: kept = [], moreSpans } = spans.report();
    // `failed`, 1,000 numbered spans and `outer` were recorded; 64 of them are kept.
    assert.equal(moreSpans, 1002 - 64);
    const lengths = Array.from({ length: 1000 }, (_, i) => ((i + 1) * 7919) % 1009).sort((a, b) => b - a);
    // Beside `failed` and `outer`, 62 numbered spans are kept.
    const expected = [10_000, ...lengths.slice(0, 62)];
    const failed = kept.filter((span) => span.failed);
    assert.deepEqual(failed, [{ name: 'failed', kind: '', fromMs: 7, toMs: 7, failed: true }]);
    const others = kept.filter((span) => !span.failed).map(({ fromMs, toMs }) => toMs - fromMs);
    assert.deepEqual(
      others.sort((a, b) => b - a),
      expected,
    );
  });

  it('bounds the number, the texts and the times of the spans that an inferlet records', () => {
    const text = fc.oneof(
      fc.string({ unit: codePoint, maxLength: 120, size: 'max' }),
      fc.constantFrom('\u202egnihsif', '\u0000\u001b[31m', '🦊'.repeat(60), 'x'.repeat(80), 'y'.repeat(100_000)),
    );
    const time = fc.oneof(fc.integer({ min: 0, max: 20_000 }), fc.constantFrom(0, 2 ** 63, 2 ** 64));
    const span = fc.record({ name: text, kind: text, began: time, ended: time, failed: fc.boolean(), ms: fc.nat(50) });
    fc.assert(
      fc.property(fc.array(span, { maxLength: 100, size: 'max' }), (recorded) => {
        const { now, pass } = clock(10_000);
        const spans = new Spans(now);
        for (const { name, kind, began, ended, failed, ms } of recorded) {
          pass(ms);
          spans.add(name, kind, began, ended, failed);
        }
        const { spans: kept = [], moreSpans = 0 } = spans.report();
        assert.equal(kept.length, Math.min(64, recorded.length));
        assert.equal(kept.length + moreSpans, recorded.length);
        for (const [i, { name, kind, fromMs, toMs }] of kept.entries()) {
          assert.ok(name.length <= 80 && kind.length <= 32, `${name.length} ${kind.length}`);
          assert.doesNotMatch(name + kind, /\p{Cc}|\p{Bidi_Control}/u);
          assert.ok((name + kind).isWellFormed());
          assert.ok(0 <= fromMs && fromMs <= toMs && toMs <= now() - 10_000);
          assert.ok((kept[i - 1]?.fromMs ?? 0) <= fromMs);
        }
      }),
      { numRuns: 30 },
    );
    const spans = new Spans();
    spans.add('x'.repeat(80), 'y'.repeat(33), 0, 0, false);
    assert.equal(spans.report().spans?.[0]?.name, 'x'.repeat(80));
    assert.equal(spans.report().spans?.[0]?.kind, `${'y'.repeat(31)}…`);
    assert.deepEqual(cutSpan(['x'.repeat(100_000), 7n]), ['x'.repeat(81), 7n]);
  });

  it('removes secrets, also a secret that is cut at the end of a name', () => {
    const redactor = new Redactor();
    redactor.add('f@v', new Map([['TOKEN', 'sesame-open-wide']]));
    const spans = new Spans();
    spans.add('call with sesame-open-wide', 'sesame-open-wide', 0, 0, false);
    spans.add(`${'x'.repeat(70)}sesame-open-wide`, '', 0, 0, false);
    const shown = JSON.stringify(spans.report(redactor.redact));
    assert.match(shown, /call with \[TOKEN\]/);
    assert.doesNotMatch(shown, /sesame/);
  });
});
