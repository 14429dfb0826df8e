import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { StepBudget, StepsExhausted } from './budget.ts';
import { Pattern } from './pattern.ts';

const SEED = 20_261_121;
/** More steps than any test here takes. */
const PLENTY = 10_000_000;
/** A number of repetitions that reads as Infinity. */
const ENDLESS = '9'.repeat(400);

/** Atoms that engines treat differently: POSIX bracket classes, line ends, code points beyond the BMP, word boundaries. */
const atom = fc.constantFrom(
  ...[
    'a',
    'b',
    'ab',
    '-',
    '😀',
    '.',
    '\\d',
    '\\D',
    '\\w',
    '\\W',
    '\\s',
    '\\S',
    '\\n',
    '\\.',
    '\\/',
    '\\x61',
    '\\u0062',
  ],
  ...['\\u{1F600}', '\\uD83D\\uDE00', '\\uD83D', '\\cJ', '\\0', '[ab]', '[^ab]', '[a-c-]', '[\\]b]', '[[:alpha:]'],
  ...[
    '[]',
    '[^]',
    '[\\d\\s😀]',
    '[\\S]',
    '\\p{L}',
    '\\P{Lu}',
    '[\\p{Script=Greek}a]',
    '^',
    '$',
    '\\b',
    '\\B',
    '(?:)',
    '()',
  ],
);
const pattern = fc.letrec<{ node: string }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    atom,
    fc.tuple(tie('node'), tie('node')).map((pair) => pair.join('')),
    fc.tuple(tie('node'), tie('node')).map((pair) => `(?:${pair.join('|')})`),
    fc
      .tuple(tie('node'), fc.constantFrom('*', '+', '?', '*?', '{2}', '{0}', '{0,2}', '{1,}', '{1,3}?'))
      .map(([node, times]) => `(${node})${times}`),
    tie('node').map((node) => `(?<name${Math.abs(hash(node))}>${node})`),
  ),
})).node;
const text = fc
  .array(
    fc.constantFrom(
      'a',
      'b',
      'c',
      'A',
      '1',
      '_',
      '-',
      ' ',
      '\n',
      '\r',
      '\u2028',
      '\u00a0',
      '😀',
      '\ud83d',
      '\ude00',
      'λ',
      'é',
      ':',
      ']',
      '/',
      '.',
    ),
    { maxLength: 12 },
  )
  .map((pieces) => pieces.join(''));

function hash(of: string): number {
  let value = of.length;
  for (const character of of) value = (value * 31 + (character.codePointAt(0) ?? 0)) | 0;
  return value;
}

describe('Pattern', () => {
  it('matches what RegExp matches with the flag u', () => {
    let compared = 0;
    fc.assert(
      fc.property(pattern, fc.array(text, { minLength: 1, maxLength: 6 }), (source, texts) => {
        let native: RegExp;
        try {
          native = new RegExp(source, 'u');
        } catch {
          // Two groups of the pattern have the same name.
          return;
        }
        const ours = new Pattern(source);
        for (const each of texts) {
          compared += 1;
          assert.equal(
            ours.test(each, new StepBudget(PLENTY)),
            native.test(each),
            `/${source}/u on ${JSON.stringify(each)}`,
          );
        }
      }),
      { seed: SEED, numRuns: 3000 },
    );
    assert.ok(compared > 3000, `${compared} comparisons`);
  });

  it('takes steps in proportion to the text where V8 takes exponential time', () => {
    for (const source of [
      '^(a+)+$',
      '^(a|aa)+$',
      '^(a|a)*$',
      '(x+x+)+y',
      '^(([a-z])+.)+[A-Z]([a-z])+$',
      '(.*){1,20}!',
    ]) {
      const compiled = new Pattern(source);
      /** The least budget that is enough for a text of this length, by binary search. */
      const stepsFor = (length: number): number => {
        let least = 1;
        for (let most = PLENTY; least < most; ) {
          const half = Math.floor((least + most) / 2);
          try {
            assert.equal(
              compiled.test(`${'x'.repeat(length / 2)}${'a'.repeat(length / 2)}?`, new StepBudget(half)),
              false,
              source,
            );
            most = half;
          } catch (error) {
            if (!(error instanceof StepsExhausted)) throw error;
            least = half + 1;
          }
        }
        return least;
      };
      const [short, long] = [stepsFor(100), stepsFor(200)];
      assert.ok(long <= 2.1 * short, `${source}: ${short} steps for 100 characters, ${long} for 200`);
    }
  });

  it('accepts an endless repetition that is itself repeated 0 times', () => {
    const pattern = new Pattern(`^(a{${ENDLESS}}){0}b$`);
    assert.ok(pattern.size < 10, `${pattern.size} instructions`);
    assert.ok(pattern.test('b', new StepBudget(PLENTY)));
    assert.ok(!pattern.test('ab', new StepBudget(PLENTY)));
  });

  const refused: [source: string, reason: RegExp][] = [
    ['(a)\\1', /refers back/],
    ['(?<x>a)\\k<x>', /refers back/],
    ['(?=a)b', /looks ahead or behind.*`not`/],
    ['(?!a)b', /looks ahead or behind/],
    ['(?<=a)b', /looks ahead or behind/],
    ['(?<!a)b', /looks ahead or behind/],
    ['(?i:a)', /changes flags/],
    ['(', /not a regular expression.*Unterminated group/],
    ['a{2001}', /2001 steps/],
    ['((a{50}){50}){50}', /steps with its repetitions/],
    ['(){99999999}', /steps with its repetitions/],
    ['a{99999999999999999999999}', /steps with its repetitions/],
    // V8 accepts the next two: it reads all of their numbers as 2^31 - 1.
    ['a{99999999999,3000000000}', /maximum is below its minimum/],
    [`a{${ENDLESS},3000000000}`, /maximum is below its minimum/],
    [`^(a{${ENDLESS}})?$`, /too many steps with its repetitions/],
    [`((a{9999999999999999}){${ENDLESS}}){0,3}`, /too many steps with its repetitions/],
    ['a'.repeat(2001), /2001 characters/],
    [`${'('.repeat(65)}${')'.repeat(65)}`, /nested more than 64/],
    [Array.from({ length: 101 }, (_, n) => `[${String.fromCodePoint(0x100 + n)}]`).join(''), /100 different/],
  ];
  for (const [source, reason] of refused) {
    it(`refuses ${source.slice(0, 30)}`, () => {
      assert.throws(() => new Pattern(source), { name: 'PatternError', message: reason });
    });
  }
});
