import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { recognizes } from '../testing/recognize.ts';
import { prune } from './expression.ts';
import { parseGbnf } from './gbnf.ts';
import { translate } from './source.ts';

/** The grammar of llama.cpp's grammars/json.gbnf. */
const JSON_GBNF = String.raw`
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
`;

describe('GBNF', () => {
  it("reads llama.cpp's own grammar of JSON", () => {
    const grammar = parseGbnf(JSON_GBNF);
    for (const text of ['{}', '{"a": [1, -2.5e3, "x\\n\\u00e9", null], "b": {"c": true}}', '{"é": "😀"}\n  ']) {
      assert.ok(recognizes(grammar, text), text);
    }
    for (const text of ['', '[]', '{', '{"a":: 1}', '{"a": "\n"}', '{"a": 1,}'])
      assert.ok(!recognizes(grammar, text), text);
  });

  it('reads escapes, bounds, dots, comments, and rules that begin on any line', () => {
    const grammar = parseGbnf(
      'root ::= a{2,3} b-c? . # a comment ::= with a rule in it\n  | "\\x41\\u00e9\\U0001f600\\"" a::="x"|\n"y" b-c ::= [\\]\\-\\u65e5-\\u672c^-]',
    );
    for (const text of ['xx!', 'xyxé', 'yy日日', 'yy]-', 'xx-\n', 'xx^.', 'Aé😀"'])
      assert.ok(recognizes(grammar, text), text);
    for (const text of ['x!', 'xx', 'xx漢漢', 'xxxxx', 'Aé😀']) assert.ok(!recognizes(grammar, text), text);
  });

  it('refuses left recursion, also through other rules and behind parts that may be empty', () => {
    const circles = [
      'root ::= root "+" n | n\nn ::= [0-9]',
      'root ::= a "x"\na ::= b? root | "y"\nb ::= "z"',
      'root ::= (("a"? b)* "c"?){0,3} "d"\nb ::= [x]* root | "e"',
    ];
    for (const val of circles) assert.throws(() => translate({ tag: 'ebnf', val }), /is left-recursive; write it/, val);
    translate({ tag: 'ebnf', val: 'root ::= "(" root ")" root | a\na ::= "" | "x" a | "y" b\nb ::= "z" a' });
    const chain = Array.from({ length: 9000 }, (_, index) => `r${index} ::= r${index + 1} | "${index}"`).join('\n');
    translate({ tag: 'ebnf', val: `root ::= r0\n${chain}\nr9000 ::= "end"` });
    assert.throws(
      () => translate({ tag: 'ebnf', val: `root ::= r0\n${chain}\nr9000 ::= r17 "end"` }),
      /"r\d+" is left-recursive/,
    );
  });

  it('reports the error and its line', () => {
    const table: [string, RegExp][] = [
      ['', /no rule named root/],
      ['root ::= "a', /line 1: .* is not valid in a grammar/],
      ['root ::= [a', /line 1/],
      ['root ::= "a"\nroot ::= "b"', /line 2: the rule "root" exists already/],
      ['root ::= "a"\nx ::= missing', /line 2: the rule "x" uses "missing"/],
      ['root ::= ("a"', /line 1: a group is not closed/],
      ['root ::= "a")', /line 1: "\)" cannot stand here/],
      ['root ::= * "a"', /"\*" cannot stand here/],
      ['root ::= "a"{3,2}', /not a range/],
      ['root ::= "\\q"', /not an escape/],
      ['root ::= "\\ud800"', /not a character/],
      ['root ::= [b-a]', /empty range/],
      ['"a" ::= root', /a rule was expected/],
      ['root ::= <think>', /is not valid in a grammar/],
    ];
    for (const [source, message] of table) assert.throws(() => parseGbnf(source), message, source);
    assert.throws(() => parseGbnf('root ::= "a"{20000}'), { tag: 'limit-exceeded' });
    assert.throws(() => parseGbnf(`root ::= ${'('.repeat(200)}"a"${')'.repeat(200)}`), { tag: 'limit-exceeded' });
  });

  it('removes rules that can never end, and refuses a grammar that no text matches', () => {
    const grammar = prune(
      parseGbnf(
        'root ::= "x" dead | "y" | [^\\x00-\\U0010ffff] | dead*\ndead ::= "z" dead | dead other\nother ::= dead',
      ),
    );
    assert.deepEqual([...grammar.rules.keys()], ['root']);
    assert.ok(recognizes(grammar, 'y') && recognizes(grammar, '') && !recognizes(grammar, 'x'));
    for (const source of [
      'root ::= root',
      'root ::= root "a"',
      'root ::= a\na ::= "(" b\nb ::= a ")"',
      'root ::= [^\\x00-\\U0010ffff]',
    ]) {
      assert.throws(() => prune(parseGbnf(source)), /no text matches/, source);
    }
  });
});
