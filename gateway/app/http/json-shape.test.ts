import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  assertShape,
  MAX_CONTAINERS,
  MAX_DEPTH,
  MAX_ESCAPED_NAMES,
  MAX_NAMES,
  MAX_REWRITTEN_NAMES,
  MAX_VALUES,
} from './json.ts';

const check = (text: string) => assertShape(new TextEncoder().encode(text), 'The body');
const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;

describe('assertShape', () => {
  it('bounds depth, names, and the number of lists and objects', () => {
    check(nested(MAX_DEPTH));
    check(`{${Array.from({ length: MAX_NAMES }, (_, n) => `"${n}":{}`).join(',')}}`);
    const names = (count: number, start: string) =>
      `{${Array.from({ length: count }, (_, n) => `"${start}${n}":"\\""`).join(',')}}`;
    // Escapes that JSON does not need: Python's `json` escapes characters beyond ASCII, and PHP's `json_encode` escapes slashes.
    for (const start of ['\\u540d', '\\u00e9', '\\ud7ff', '\\/']) check(names(MAX_ESCAPED_NAMES, start));
    check(names(MAX_REWRITTEN_NAMES, '\\"'));
    check(`[${'"\\n",'.repeat(MAX_ESCAPED_NAMES + 1)}{"a":1}]`);
    const refused: [text: string, why: RegExp][] = [
      [names(MAX_ESCAPED_NAMES + 1, '\\u540d'), /10000 names with escapes/],
      ...['\\"', '\\\\', '\\n', '\\u0022', '\\ud83d', '\\uDC00'].map((start): [string, RegExp] => [
        names(MAX_REWRITTEN_NAMES + 1, start),
        /1000 names with quotation marks/,
      ]),
      [nested(MAX_DEPTH + 1), /more than 256 deep/],
      ['{"a":'.repeat(MAX_DEPTH + 1), /more than 256 deep/],
      [`{${Array.from({ length: MAX_NAMES + 1 }, (_, n) => `"${n}":0`).join(',')}}`, /50000 names/],
      [`[${'1,'.repeat(MAX_VALUES)}1]`, /1000000 values/],
      [`[${'[],'.repeat(MAX_CONTAINERS)}0]`, /100000 lists and objects/],
    ];
    for (const [text, why] of refused) assert.throws(() => check(text), { code: 'invalid-input', message: why });
  });

  it('ignores brackets within strings', () => {
    for (const text of [
      nested(300),
      `"${nested(300)}`,
      `\\"${nested(300)}`,
      `${nested(300)}\\`,
      `${nested(300)}\\\\"[{`,
    ])
      check(JSON.stringify({ [text]: text }));
    // The text before the brackets ends with an escaped backslash, so the brackets are outside the string.
    assert.throws(() => check(`["\\\\",${nested(300)}]`), /deep/);
  });

  it('accepts every small document', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 8 }), (value) => check(JSON.stringify(value))),
      { seed: 7 },
    );
  });
});
