import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { recognizes } from '../testing/recognize.ts';
import { type Expression, GrammarError, repeat } from './expression.ts';
import { regex, regexSearch } from './regex.ts';

const SEED = 7;

function matches(expression: Expression, text: string): boolean {
  return recognizes({ root: 'root', rules: new Map([['root', expression]]) }, text);
}

const ATOMS = [
  'a',
  'b',
  '\\d',
  '\\w',
  '.',
  '[ab]',
  '[^a]',
  '[a-c\\d]',
  '\\s',
  '\\n',
  'é',
  '\\u{1f600}',
  '\\x41',
  '\\.',
  '[\\]\\-b]',
  '-',
  '\\}',
];
const QUANTIFIERS = ['', '', '', '*', '+', '?', '{2}', '{1,}', '{0,2}', '*?', '+?'];
const LETTERS = ['a', 'b', 'c', '1', '.', ' ', '\n', 'é', '😀', 'A', '-', ']', '}', '_'];

function randomPattern(random: Random, depth: number): string {
  const alternatives = Array.from({ length: random.pick([1, 1, 2]) }, () =>
    Array.from({ length: random.integer(0, 3) }, () => {
      const isGroup = depth > 0 && random.chance(0.3);
      const open = random.pick(['(', '(?:', `(?<n${random.integer(0, 1e9)}>`]);
      const atom = isGroup ? `${open}${randomPattern(random, depth - 1)})` : random.pick(ATOMS);
      return atom + random.pick(QUANTIFIERS);
    }).join(''),
  );
  return alternatives.join('|');
}

describe('regex', () => {
  it(`matches the same texts as RegExp, for 400 random patterns, seed ${SEED}`, () => {
    const random = new Random(SEED);
    let matched = 0;
    for (let index = 0; index < 400; index += 1) {
      const pattern = randomPattern(random, 2);
      const whole = new RegExp(`^(?:${pattern})$`, 'u');
      const anywhere = new RegExp(pattern, 'u');
      const [expression, search] = [regex(pattern), regexSearch(pattern)];
      for (let sample = 0; sample < 12; sample += 1) {
        const text = Array.from({ length: random.integer(0, 5) }, () => random.pick(LETTERS)).join('');
        assert.equal(matches(expression, text), whole.test(text), `${pattern} on ${JSON.stringify(text)}`);
        assert.equal(matches(search, text), anywhere.test(text), `search for ${pattern} in ${JSON.stringify(text)}`);
        if (whole.test(text)) matched += 1;
      }
    }
    assert.ok(matched > 300, `too few matches: ${matched}`);
  });

  it('accepts anchors only at the ends', () => {
    assert.ok(matches(regex('^(^a|^b)$'), 'b'));
    assert.ok(matches(regex('^(^a|b)$'), 'b'));
    assert.ok(matches(regexSearch('^a|b$'), 'ax'));
    assert.ok(!matches(regexSearch('^a|b$'), 'xa'));
    for (const pattern of ['a^', '$a', '(a$)b', '(^a)+', 'x(^a)'])
      assert.throws(() => regex(pattern), GrammarError, pattern);
    assert.throws(() => regexSearch('(^a|b)'), /only some alternatives/);
  });

  it('reports the error, its place and advice', () => {
    const table: [string, RegExp][] = [
      ['a(?=b)', /character 4: lookaround .*; use/],
      ['(?<!a)b', /lookaround/],
      ['(a)\\1', /character 5: \\1 has no counterpart/],
      ['\\bword', /\\b has no counterpart/],
      ['\\p{Nothing}', /\\p names no property/],
      ['(a', /a group is not closed; add a \)/],
      ['a)', /a \) closes nothing/],
      ['[a', /ends too early/],
      ['[b-a]', /range of characters is empty/],
      ['*a', /\* repeats nothing/],
      ['a**', /two quantifiers/],
      ['a{3,1}', /range "\{3,1\}" is empty/],
      [`a{${'9'.repeat(400)},${'0'.repeat(400)}}`, /range "\{9{39}…" is empty/],
      ['\\u{110000}', /not a character/],
      ['\\ud800', /not a character/],
      ['\\xZZ', /2 hexadecimal digits/],
      ['\ud800', /UTF-16/],
    ];
    for (const [pattern, message] of table) {
      assert.throws(
        () => regex(pattern),
        (error: unknown) =>
          error instanceof GrammarError && error.tag === 'invalid-argument' && message.test(error.message),
        pattern,
      );
    }
    for (const pattern of [
      'a{10001}',
      `a{${'9'.repeat(400)}}`,
      `a{0,${'9'.repeat(400)}}`,
      `${'('.repeat(5000)}a${')'.repeat(5000)}`,
    ]) {
      assert.throws(() => regex(pattern), { tag: 'limit-exceeded' });
    }
  });

  it('matches only the empty text with a repetition of an empty class', () => {
    assert.ok(matches(repeat(regex('[]'), 0, 3), ''));
    assert.ok(!matches(regex('[]'), ''));
  });
});
