import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { StopScanner } from './stop.ts';

/** The scanner's output when `text` arrives in pieces that end at `cuts`. */
function scan(
  stops: readonly string[],
  text: string,
  cuts: readonly number[],
): { text: string; stop: string | undefined } {
  const scanner = new StopScanner(stops);
  const borders = [...new Set(cuts.map((cut) => cut % (text.length + 1)))].sort((a, b) => a - b);
  let out = '';
  let from = 0;
  for (const border of [...borders, text.length]) {
    const { text: passed, stop } = scanner.push(text.slice(from, border));
    out += passed;
    if (stop !== undefined) return { text: out, stop };
    from = border;
  }
  return { text: out + scanner.finish(), stop: undefined };
}

describe('StopScanner', () => {
  it('holds back only text that may become a stop string', () => {
    const scanner = new StopScanner(['</end>', '\n\n']);
    assert.deepEqual(scanner.push('one </'), { text: 'one ', stop: undefined });
    assert.deepEqual(scanner.push('en'), { text: '', stop: undefined });
    assert.deepEqual(scanner.push('ough\n'), { text: '</enough', stop: undefined });
    assert.deepEqual(scanner.push('\nrest'), { text: '', stop: '\n\n' });
  });

  it('returns the held text at the end', () => {
    const scanner = new StopScanner(['STOP']);
    assert.deepEqual(scanner.push('a ST'), { text: 'a ', stop: undefined });
    assert.equal(scanner.finish(), 'ST');
    assert.equal(scanner.finish(), '');
  });

  it('takes the stop string that begins first, and the longest of those', () => {
    assert.deepEqual(scan(['b', 'abc', 'ab'], 'xabcd', []), { text: 'x', stop: 'abc' });
  });

  it('finds a stop string that repeats its own beginning', () => {
    assert.deepEqual(scan(['aab'], 'aaab', [1, 2, 3]), { text: 'a', stop: 'aab' });
  });

  it('passes all text without stop strings, and ignores empty ones', () => {
    assert.equal(new StopScanner(['']).idle, true);
    assert.deepEqual(scan([''], 'text', [2]), { text: 'text', stop: undefined });
  });

  it('never passes a stop string, and passes all text before it, for random pieces', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'é'), minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(
        fc.array(word, { minLength: 1, maxLength: 3 }),
        fc.string({ unit: fc.constantFrom('a', 'b', 'é'), maxLength: 30, size: 'max' }),
        fc.array(fc.nat(), { maxLength: 10 }),
        (stops, text, cuts) => {
          const starts = stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
          const result = scan(stops, text, cuts);
          if (starts.length === 0) {
            assert.deepEqual(result, { text, stop: undefined });
            return;
          }
          assert.ok(result.stop !== undefined);
          // The pieces may complete a short stop string before a longer one that began earlier.
          assert.ok(text.startsWith(result.text + result.stop));
          assert.ok(stops.every((stop) => !result.text.includes(stop)));
        },
      ),
      { seed: 7, numRuns: 500 },
    );
  });
});
