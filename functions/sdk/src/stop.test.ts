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

  it('takes the stop string that ends first, and of several with the same end the longest', () => {
    assert.deepEqual(scan(['bcd', 'c', 'bc'], 'abcd', []), { text: 'a', stop: 'bc' });
    assert.deepEqual(scan(['abc', 'ab'], 'xabcd', []), { text: 'x', stop: 'ab' });
  });

  it('finds a stop string that repeats its own beginning', () => {
    assert.deepEqual(scan(['aab'], 'aaab', [1, 2, 3]), { text: 'a', stop: 'aab' });
  });

  it('ignores an empty stop string, and passes all text when there is no other', () => {
    assert.equal(new StopScanner(['']).idle, true);
    assert.deepEqual(scan([''], 'text', [2]), { text: 'text', stop: undefined });
  });

  it('finds the same stop string in any pieces, and passes all text before it', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'é'), minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(
        fc.array(word, { minLength: 1, maxLength: 3 }),
        fc.string({ unit: fc.constantFrom('a', 'b', 'é'), maxLength: 30, size: 'max' }),
        fc.array(fc.nat(), { maxLength: 10 }),
        (stops, text, cuts) => {
          const prefixes = Array.from(text, (_, index) => text.slice(0, index + 1));
          const untilStop = prefixes.find((prefix) => stops.some((stop) => prefix.endsWith(stop)));
          const [stop] = stops.filter((each) => untilStop?.endsWith(each)).sort((a, b) => b.length - a.length);
          const expected = untilStop === undefined ? text : untilStop.slice(0, untilStop.length - (stop?.length ?? 0));
          assert.deepEqual(scan(stops, text, cuts), { text: expected, stop });
        },
      ),
      { seed: 7, numRuns: 500 },
    );
  });
});
