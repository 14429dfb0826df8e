import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { recognizes } from '#runtime/grammar/testing/recognize.ts';
import { parseGbnf } from '#runtime/grammar/translate/gbnf.ts';
import { gbnfOfLark, LarkError } from './lark.ts';

/** Grammars with texts that they accept, and texts that they refuse. */
const GRAMMARS: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ['start: "a" "b"? ("c" | "d")+ ["e"]', ['acd', 'abce'], ['a', 'ab', 'abee']],
  [
    'start: item ("," item)*\nitem: NAME -> named\n  | INT\nNAME: /[a-z_]\\w*/\n%import common.INT',
    ['a1,22', '_'],
    ['1a', ','],
  ],
  ['start: "x"~2 "y"~1..3', ['xxy', 'xxyyy'], ['xy', 'xxyyyy']],
  ['?start: HEX+ // comment "with" /parts/\nHEX.2: "0".."9" | "a".."f" # another', ['0f9'], ['g', '']],
  ['start: "Select"i / *[^"\\n]+/ ";"', ['SELECT a;', 'select  b;'], ['select;;\n', 'selec a;']],
  ['start: /a{2}b{1,}c{0,2}?/', ['aab', 'aabbcc'], ['ab', 'aabccc']],
  ['start: /(?:ab|c)*?\\d+\\.\\s[^\\]\\-]/', ['ababc12. x', '1.\t😀'], ['ab. x', '1. ]', '1. -']],
  ['start: /[+\\-*\\/][\\w.-]/i', ['+a', '-.', '/-', '*_'], ['a+', '++']],
  ['start: /ab/i "\\"\\\\\\n" /./', ['aB"\\\nz', 'AB"\\\n😀'], ['ab"\\\n\n']],
  ['start: /a.b/s', ['a\nb'], ['ab']],
  ['start: "(" start ")" | "."', ['((.))', '.'], ['(.', '']],
  ['start: _a_b\n_a_b: "\\x41\\u00e9"', ['Aé'], ['A']],
  ['start: "[" "]" "^-" /[\\]^]/', ['[]^-^', '[]^-]'], ['[]^--']],
];

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ['item: "a"', /no rule is named start/],
  ['start: "a"\n%ignore " "', /line 2: "%ignore " "" is not supported/],
  ['start: "a"\n\n%import python.NAME', /line 3/],
  ['start: /a(?=b)/', /line 1: the group "\(\?=b/],
  ['start: /^a/', /"\^" in a regular expression/],
  ['start: /\\bx/', /"\\b" in a regular expression/],
  ['start: ("a"', /a group is not closed/],
  ['start: "a" ]', /"\]" closes no group/],
  ['start "a"', /a rule has the form/],
  ['start: /a/x', /the flags "x"/],
];

describe('gbnfOfLark', () => {
  for (const [source, accepted, refused] of GRAMMARS)
    it(`translates ${JSON.stringify(source)}`, () => {
      const grammar = parseGbnf(gbnfOfLark(source));
      for (const text of accepted) assert.ok(recognizes(grammar, text), `accepts ${JSON.stringify(text)}`);
      for (const text of refused) assert.ok(!recognizes(grammar, text), `refuses ${JSON.stringify(text)}`);
    });
  for (const [source, message] of REFUSED)
    it(`refuses ${JSON.stringify(source)}`, () => {
      assert.throws(
        () => gbnfOfLark(source),
        (error) => error instanceof LarkError && message.test(error.message),
      );
    });
});
