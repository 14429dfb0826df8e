import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { recognizes } from '../testing/recognize.ts';
import { GrammarError } from './error.ts';
import { jsonGrammar, jsonSchemaGrammar } from './json-schema.ts';
import { prune } from './prune.ts';

function accepts(schema: unknown, text: string): boolean {
  return recognizes(prune(jsonSchemaGrammar(JSON.stringify(schema))), text);
}

const NODE = {
  type: 'object',
  properties: { v: { type: 'integer' }, next: { $ref: '#/$defs/node' } },
  required: ['v'],
};

/** Schemas with valid texts, and with invalid texts that are close to valid ones. */
const TABLE: [name: string, schema: unknown, taken: string[], refused: string[]][] = [
  [
    'anything',
    true,
    ['{"a": [1, null]}', '"\\ud83d\\ude00\\n"', '-0.5E+10'],
    ['', '01', '"\\ud83d"', '"\n"', '[1,]', '{"a"}', 'True'],
  ],
  [
    'closed objects',
    { type: 'object', properties: { a: { type: 'null' } } },
    ['{}', '{ "a": null }'],
    ['{"b":1}', '{"a":null,"a":null}'],
  ],
  [
    'order and requirement',
    { properties: { a: true, b: { const: 1 }, c: true }, required: ['b'] },
    ['{"b":1}', '{"a":{},"b":1,"c":[]}'],
    ['{}', '{"a":1}', '{"c":1,"b":1}', '{,"b":1}'],
  ],
  [
    'other properties',
    { properties: { ab: { type: 'null' } }, additionalProperties: { type: 'integer' } },
    ['{"ab":null,"a":1,"abc":2,"":3}', '{"x":1}'],
    ['{"ab":1}', '{"x":null}', '{"\\u0061b":1}', '{"x":1,"ab":1}'],
  ],
  [
    'required but not declared',
    { required: ['q"'], additionalProperties: { type: 'integer' } },
    ['{"q\\"":1}'],
    ['{}', '{"q\\"":null}'],
  ],
  [
    'required but forbidden',
    { properties: {}, required: ['a'], additionalProperties: false, type: ['object', 'null'] },
    ['null'],
    ['{}', '{"a":1}'],
  ],
  [
    'counts of properties',
    { properties: { a: true, b: true, c: true }, minProperties: 2, maxProperties: 2 },
    ['{"a":1,"c":1}'],
    ['{"a":1}', '{"a":1,"b":1,"c":1}'],
  ],
  [
    'one more property',
    { type: 'object', minProperties: 1, maxProperties: 2 },
    ['{"x":1}', '{"x":1,"y":2}'],
    ['{}', '{"x":1,"y":2,"z":3}'],
  ],
  [
    'names by pattern',
    { patternProperties: { '^x_': { type: 'integer' } }, additionalProperties: false },
    ['{}', '{"x_a":1,"x_":2}'],
    ['{"y":1}', '{"x_a":"1"}'],
  ],
  [
    'tuples',
    { prefixItems: [{ type: 'integer' }, { type: 'null' }] },
    ['[1,null]'],
    ['[]', '[1]', '[1,null,2]', '[null,1]'],
  ],
  [
    'open tuples',
    { prefixItems: [{ type: 'integer' }], items: { type: 'null' }, minItems: 0, maxItems: 2 },
    ['[]', '[1]', '[1, null]'],
    ['[null]', '[1,null,null]'],
  ],
  ['longer than its tuple', { prefixItems: [true], minItems: 3 }, ['[1,2,3]', '[1,2,3,4]'], ['[1,2]']],
  [
    'counts of items',
    { items: { type: 'integer' }, minItems: 2, maxItems: 3 },
    ['[1,2]', '[1,2,3]'],
    ['[]', '[1]', '[1,2,3,4]'],
  ],
  [
    'constants',
    { enum: ['a', 1, null, { k: [1] }], type: ['string', 'object'] },
    ['"a"', '{"k":[1]}'],
    ['1', 'null', '"b"'],
  ],
  [
    'lengths in characters',
    { type: 'string', minLength: 2, maxLength: 3 },
    ['"é😀"', '"abc"', '"\\n\\ud83d\\ude00\\u00e9"'],
    ['"a"', '"abcd"', '"a\n"', '""'],
  ],
  ['at least so long', { type: 'string', minLength: 2 }, ['"ab\\n"'], ['"a"', '"a\\n']],
  ['patterns inside of strings', { pattern: '^.{2}"\\\\\\t$' }, ['"ab\\"\\\\\\t"'], ['"ab"\\\\\\t"', '"ab\\"\\t"']],
  ['patterns anywhere', { type: 'string', pattern: 'b+' }, ['"b"', '"abba"', '"\\"b\\n"'], ['"a"', '"b']],
  [
    'whole formats',
    { type: 'string', format: 'date' },
    ['"2024-12-31"', '"2023-02-28"'],
    ['"2024-13-01"', '"2023-02-30"', '"2024-04-31"', '"24-1-1"'],
  ],
  ['recursion', { $ref: '#/$defs/node', $defs: { node: NODE } }, ['{"v":1,"next":{"v":2}}'], ['{"v":1,"next":{}}']],
  [
    'keywords beside a reference',
    { $ref: '#/$defs/n', minimum: 3, $defs: { n: { type: 'integer', maximum: 5 } } },
    ['3', '5'],
    ['2', '6'],
  ],
  [
    'all of several',
    { allOf: [{ type: ['integer', 'null'] }, { type: 'number', minimum: 2 }, { maximum: 4 }] },
    ['2', '4'],
    ['1', '5', 'null', '2.5'],
  ],
  [
    'properties of all',
    {
      allOf: [
        { properties: { a: { type: 'integer' } }, required: ['a'] },
        { type: 'object', properties: { a: { minimum: 2 }, b: true }, required: ['b'] },
      ],
    },
    ['{"a":2,"b":0}'],
    ['{"a":1,"b":0}', '{"a":2}', '{"b":0}'],
  ],
  [
    'keywords beside alternatives',
    { type: 'object', properties: { a: true, b: true }, anyOf: [{ required: ['a'] }, { required: ['b'] }] },
    ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
    ['{}'],
  ],
  ['exactly one', { oneOf: [{ type: 'integer' }, { type: 'string' }] }, ['1', '"a"'], ['null']],
  [
    'a contradiction in one branch',
    { anyOf: [{ type: 'integer', minimum: 3, maximum: 2 }, { type: 'null' }] },
    ['null'],
    ['2', '3'],
  ],
  [
    'a name of the prototype',
    JSON.parse(
      '{"properties":{"__proto__":{"type":"integer"},"constructor":{"type":"null"}},"required":["__proto__"]}',
    ),
    ['{"__proto__":1,"constructor":null}'],
    ['{"__proto__":null}', '{}'],
  ],
];

describe('JSON schemas', () => {
  for (const [name, schema, taken, refused] of TABLE) {
    it(`accept valid and reject invalid texts: ${name}`, () => {
      for (const text of taken) assert.ok(accepts(schema, text), `${text} must match`);
      for (const text of refused) assert.ok(!accepts(schema, text), `${text} must not match`);
    });
  }

  it('bound the runs of spaces in any JSON', () => {
    assert.ok(recognizes(jsonGrammar(), '{ }'));
    assert.ok(recognizes(jsonGrammar(), `{\n${' '.repeat(20)}}`));
    for (const spaces of ['  ', '\n\n', ' \n', `\n${' '.repeat(21)}`]) {
      assert.ok(!recognizes(jsonGrammar(), `{${spaces}}`), JSON.stringify(spaces));
    }
  });

  it('accept printed JSON on one line and on many lines', () => {
    const value = { a: [1, { b: 'c' }, []], d: {}, e: null };
    for (const indent of [0, 2, 4, '\t']) assert.ok(recognizes(jsonGrammar(), JSON.stringify(value, null, indent)));
    assert.ok(recognizes(jsonGrammar(), '{"a": [1, 2], "b": true}'));
  });

  it('refuse unsupported keywords with their place and advice', () => {
    const refused: [unknown, RegExp][] = [
      [{ properties: { a: { not: {} } } }, /#\/properties\/a: not cannot be kept.*; list what is allowed/],
      [{ items: { type: 'array', uniqueItems: true } }, /#\/items: uniqueItems/],
      [{ type: 'integer', multipleOf: 3 }, /multipleOf/],
      [{ if: {}, else: {} }, /if cannot be kept/],
      [{ propertyNames: { pattern: 'a' } }, /propertyNames/],
      [{ oneOf: [{ type: 'integer' }, { type: 'number' }] }, /#\/oneOf: a value might fit more than one/],
      [{ type: 'string', format: 'color' }, /#\/format: "color" is not kept; known: date/],
      [{ type: 'string', pattern: 'a', maxLength: 3 }, /cannot be kept together/],
      [{ type: 'string', pattern: '(?=a)' }, /lookaround/],
      [{ type: 'text' }, /#\/type: "text" is no type/],
      [{ $ref: 'http://example.com/schema' }, /points elsewhere/],
      [{ $ref: '#/$defs/a~1b' }, /points to nothing/],
      [{ enum: [1], minimum: 0 }, /minimum beside enum/],
      [{ type: 'string', minLength: -1 }, /#\/minLength: must be an integer/],
      [{ minimum: '3' }, /#\/minimum: must be a number/],
      [{ type: 'array', minItems: 3, maxItems: 2 }, /minItems 3 is more than maxItems 2/],
      [{ properties: { a: 3 } }, /#\/properties\/a: a schema must be/],
      [{ minProperties: 5, properties: { a: true } }, /minProperties/],
      [{ allOf: [{ properties: { a: true } }, { additionalProperties: false }] }, /limited in two places/],
      [{ anyOf: [] }, /at least one schema/],
      [{ patternProperties: { a: true, b: true } }, /two schemas/],
      [false, /no text matches/],
      [{ type: 'object', required: ['a'], properties: { a: false } }, /no text matches/],
      [{ $ref: '#' }, /no text matches/],
      [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, /no text matches/],
      [{ allOf: [{ $ref: '#' }] }, /lead back to themselves/],
    ];
    for (const [schema, message] of refused) {
      assert.throws(
        () => accepts(schema, ''),
        (error: unknown) =>
          error instanceof GrammarError && error.tag === 'invalid-argument' && message.test(error.message),
        JSON.stringify(schema),
      );
    }
    assert.throws(() => jsonSchemaGrammar('{"type":'), /it is no JSON/);
  });
});
