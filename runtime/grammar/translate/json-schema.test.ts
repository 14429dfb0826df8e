import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accepts } from '../testing/accepts.ts';
import { recognizes } from '../testing/recognize.ts';
import { GrammarError } from './expression.ts';
import { jsonGrammar, jsonSchemaGrammar } from './json-schema.ts';

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
    { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: false },
    ['{}', '{ "a": null }'],
    ['{"b":1}', '{"a":null,"a":null}'],
  ],
  [
    'open objects',
    { type: 'object', properties: { a: { type: 'null' } }, required: ['a'] },
    ['{"a":null}', '{"b":1,"a":null, "c": []}'],
    ['{}', '{"b":1}', '{"a":1}', '{"a":null,"a":null}'],
  ],
  [
    'any order and requirement',
    { properties: { a: true, b: { const: 1 }, bc: true }, required: ['b'], additionalProperties: false },
    ['{"b":1}', '{"a":{},"b":1,"bc":[]}', '{"bc":1,"b":1}', '{"b":1, "bc":1, "a":1}'],
    ['{}', '{"a":1}', '{"bc":1,"bc":1,"b":1}', '{,"b":1}', '{"b":1,}'],
  ],
  [
    'the declared order',
    {
      properties: { a: true, b: { const: 1 }, c: true },
      required: ['b'],
      additionalProperties: { type: 'null' },
      'x-guidance': { ordered: true },
    },
    ['{"b":1}', '{"a":{},"b":1,"c":[]}', '{"b":1,"x":null,"y":null}', '{"b":1,"c":2,"x":null}'],
    ['{}', '{"a":1}', '{"c":1,"b":1}', '{"b":1,"a":1}', '{"x":null,"b":1}', '{"b":1,"x":null,"c":1}', '{"b":1,"x":1}'],
  ],
  [
    'the declared order with bounds',
    {
      properties: { a: true, b: true, c: true },
      minProperties: 2,
      maxProperties: 2,
      additionalProperties: false,
      'x-guidance': { ordered: true },
    },
    ['{"a":1,"b":1}', '{"a":1,"c":1}', '{"b":1,"c":1}'],
    ['{"c":1}', '{"c":1,"a":1}', '{"a":1,"b":1,"c":1}'],
  ],
  [
    'other properties',
    { properties: { ab: { type: 'null' } }, additionalProperties: { type: 'integer' } },
    ['{"ab":null,"a":1,"abc":2,"":3}', '{"x":1}', '{"a\u00e9\\n":1,"ax\\u0062":2}'],
    ['{"ab":1}', '{"x":null}', '{"\\u0061b":1}', '{"a\\u0062":1}', '{"x":1,"ab":1}'],
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
  ['a minimum length', { type: 'string', minLength: 2 }, ['"ab\\n"'], ['"a"', '"a\\n']],
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
    'exactly one of several that overlap',
    { oneOf: [{ type: 'integer' }, { type: 'number', minimum: 2 }, { const: 7 }] },
    ['1', '-3', '2.5', '100.25'],
    ['2', '7', '2.0', '1.5', '"a"'],
  ],
  [
    'exactly one required property',
    { properties: { a: true, b: true, c: true }, oneOf: [{ required: ['a'] }, { required: ['b'] }] },
    ['{"a":1}', '{"b":1,"c":2}'],
    ['{}', '{"a":1,"b":1}'],
  ],
  [
    'exactly one object of overlapping ones',
    {
      oneOf: [
        { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] },
        { type: 'object', properties: { a: { minimum: 5 }, b: true }, required: ['a'] },
      ],
    },
    ['{"a":4}', '{"a":5.5,"b":0}', '{"a":"x"}'],
    ['{"a":5}', '{"a":6,"b":0}', '{"a":4.5}'],
  ],
  [
    'no value of a list',
    { type: ['integer', 'string'], not: { enum: [3, 'no'] } },
    ['4', '33', '"n"', '"noo"'],
    ['3', '"no"'],
  ],
  [
    'neither null nor an integer',
    { not: { type: ['null', 'integer'] } },
    ['1.5', '"a"', '[]', '{}', 'true'],
    ['null', '1', '1.0', '-2.00'],
  ],
  [
    'a property that must be absent',
    { type: 'object', properties: { a: true, b: true }, not: { required: ['a', 'b'] } },
    ['{}', '{"a":1}', '{"b":1}'],
    ['{"a":1,"b":1}'],
  ],
  ['no text of a pattern', { type: 'string', not: { pattern: '^x|y$' } }, ['"ax"', '""'], ['"x"', '"ay"']],
  [
    'any object but the given one',
    { type: 'object', properties: { a: true, b: true }, not: { const: { a: [1] } } },
    ['{}', '{"a":[2]}', '{"a":[]}', '{"a":[1],"b":0}', '{"a":[1,1]}'],
    ['{"a":[1]}'],
  ],
  [
    'the negation of alternatives',
    {
      not: {
        anyOf: [{ type: 'string' }, { type: 'number', minimum: 3 }, { type: 'array', items: { type: 'null' } }],
      },
    },
    ['2', '[1]', '[null,1]', '{}'],
    ['"a"', '3', '[]', '[null]'],
  ],
  [
    'the opposites of bounds',
    {
      type: ['string', 'number', 'array'],
      not: {
        anyOf: [
          { type: 'string', maxLength: 2 },
          { type: 'number', exclusiveMaximum: 3 },
          { type: 'array', minItems: 2 },
        ],
      },
    },
    ['"abc"', '3', '[1]', '[]'],
    ['"ab"', '2.9', '[1,2]'],
  ],
  [
    'the opposites of other bounds',
    {
      type: ['string', 'number', 'array'],
      not: {
        anyOf: [
          { type: 'string', minLength: 2 },
          { type: 'number', minimum: 3 },
          { type: 'array', maxItems: 1 },
        ],
      },
    },
    ['"a"', '2.9', '[1,2]'],
    ['"ab"', '3', '[1]', '[]'],
  ],
  [
    'a condition',
    {
      type: 'object',
      properties: { kind: { enum: ['a', 'b'] }, x: { type: 'integer' } },
      required: ['kind'],
      if: { properties: { kind: { const: 'a' } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: { required: ['x'] },
      else: { properties: { x: { maximum: 5 } } },
    },
    ['{"kind":"a","x":9}', '{"kind":"b"}', '{"kind":"b","x":5}'],
    ['{"kind":"a"}', '{"kind":"b","x":6}'],
  ],
  [
    'properties that depend on others',
    {
      properties: { a: true, b: true, c: { type: 'integer' } },
      dependentRequired: { a: ['b'] },
      dependentSchemas: { b: { properties: { c: { minimum: 3 } } } },
    },
    ['{}', '{"b":1}', '{"a":1,"b":1,"c":3}', '{"c":1}'],
    ['{"a":1}', '{"b":1,"c":2}'],
  ],
  [
    'multiples',
    { type: 'integer', multipleOf: 15, minimum: -20, maximum: 40 },
    ['0', '15', '30', '-15'],
    ['5', '45', '-30', '-0'],
  ],
  ['decimal multiples', { type: 'number', multipleOf: 0.25 }, ['0.5', '-1.75', '3', '2.250'], ['0.3', '0.26', '1e2']],
  ['no multiples', { type: 'integer', not: { multipleOf: 10 } }, ['1', '25', '-101'], ['0', '10', '-200']],
  [
    'an item among others',
    { type: 'array', items: { type: ['integer', 'null'] }, contains: { type: 'integer', minimum: 5 } },
    ['[5]', '[1,null,9,2]'],
    ['[]', '[4]', '["a"]', '[null]'],
  ],
  [
    'counted items',
    { type: 'array', items: { enum: [1, 2, 3] }, contains: { const: 2 }, minContains: 1, maxContains: 2, maxItems: 4 },
    ['[2]', '[1,2,3,2]'],
    ['[]', '[1,3]', '[2,2,2]', '[1,1,1,1,2]'],
  ],
  [
    'different values of a list in any order',
    { type: 'array', items: { enum: ['a', 'b', 'c'] }, uniqueItems: true, minItems: 1 },
    ['["b"]', '["c","a"]', '["a","b","c"]'],
    ['[]', '["a","a"]', '["b","c","b"]'],
  ],
  [
    'different values of a long list in its order',
    { type: 'array', items: { enum: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }, uniqueItems: true, maxItems: 3 },
    ['[]', '[0,5,9]'],
    ['[1,1]', '[1,2,3,4]', '[3,2]'],
  ],
  [
    'different strings, checked at the end',
    { type: 'array', items: { type: 'string' }, uniqueItems: true },
    ['["a","b"]'],
    ['["a","a"]'],
  ],
  [
    'names',
    { type: 'object', propertyNames: { pattern: '^[a-z]+$', maxLength: 3 }, additionalProperties: { type: 'null' } },
    ['{}', '{"abc":null}'],
    ['{"abcd":null}', '{"A":null}', '{"a":1}'],
  ],
  [
    'patterns and properties for one name',
    {
      properties: { ab: { type: 'integer' } },
      patternProperties: { '^a': { minimum: 3 }, b$: { maximum: 9 } },
      additionalProperties: { type: 'null' },
    },
    ['{"ab":3}', '{"ac":3,"cb":9,"aab":5,"x":null}'],
    ['{"ab":2}', '{"ab":3.5}', '{"aab":10}', '{"x":1}'],
  ],
  [
    'no property besides those of all alternatives',
    {
      properties: { a: true },
      anyOf: [{ properties: { b: { type: 'integer' } }, required: ['b'] }, { properties: { c: true } }],
      unevaluatedProperties: false,
    },
    ['{"a":1,"b":2}', '{"c":3}'],
    ['{"d":1}', '{"a":1,"b":"x"}'],
  ],
  [
    'a pattern of some length',
    { type: 'string', pattern: '^[ab]*$', minLength: 1, maxLength: 2 },
    ['"a"', '"ba"'],
    ['""', '"aba"', '"c"'],
  ],
  ['constants beside other keywords', { enum: [1, 5, 'a'], minimum: 2 }, ['5', '"a"'], ['1']],
  [
    'recursive schemas that both hold',
    {
      $defs: { node: NODE, b: { type: 'object', properties: { v: { minimum: 2 }, next: { $ref: '#/$defs/b' } } } },
      allOf: [{ $ref: '#/$defs/node' }, { $ref: '#/$defs/b' }],
    },
    ['{"v":2}', '{"v":2,"next":{"v":3}}'],
    ['{"v":1}', '{"v":2,"next":{"v":1}}'],
  ],
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

  it('bound the whitespace between two tokens of any JSON', () => {
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
      [{ properties: { a: { $dynamicRef: '#x' } } }, /#\/properties\/a\/\$dynamicRef: it cannot be kept.*; use \$ref/],
      [{ type: 'number', multipleOf: 0 }, /#\/multipleOf: must be more than 0/],
      [{ allOf: [{ type: 'string' }, { not: { type: 'string' } }] }, /no text matches/],
      [{ uniqueItems: true, items: { pattern: '(?=a)' } }, /lookaround/],
      [
        { $defs: { a: { $id: 'b', properties: { x: { $ref: '#/$defs/c' } } } }, $ref: '#/$defs/a' },
        /x\/\$ref: .* points to nothing/,
      ],
      [{ type: 'string', pattern: '(?=a)' }, /lookaround/],
      [{ type: 'text' }, /#\/type: "text" is not a type/],
      [{ $ref: 'http://example.com/schema' }, /points elsewhere/],
      [{ $ref: '#/$defs/a~1b' }, /points to nothing/],
      [{ type: 'string', minLength: -1 }, /#\/minLength: must be an integer/],
      [{ minimum: '3' }, /#\/minimum: must be a number/],
      [{ type: 'array', minItems: 3, maxItems: 2 }, /no text matches/],
      [{ minLength: 5, maxLength: 2 }, /no text matches/],
      [{ properties: { a: 3 } }, /#\/properties\/a: a schema must be/],
      [{ minProperties: 5, properties: { a: true }, additionalProperties: false }, /no text matches/],
      [{ anyOf: [] }, /at least one schema/],
      [false, /no text matches/],
      [{ type: 'object', required: ['a'], properties: { a: false } }, /no text matches/],
      [{ $ref: '#' }, /no text matches/],
      [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, /no text matches/],
      [{ allOf: [{ $ref: '#' }] }, /lead back to themselves/],
      [{ 'x-guidance': true }, /#\/x-guidance: it must be an object/],
      [{ 'x-guidance': { whitespace_flexible: 0 } }, /whitespace_flexible must be true or false/],
      [{ 'x-guidance': { checked: 'no' } }, /checked must be true or false/],
      [{ 'x-guidance': { whitespace_pattern: ' ?' } }, /"whitespace_pattern" is not supported/],
    ];
    for (const [schema, message] of refused) {
      assert.throws(
        () => accepts(schema, ''),
        (error: unknown) =>
          error instanceof GrammarError && error.tag === 'invalid-argument' && message.test(error.message),
        JSON.stringify(schema),
      );
    }
    assert.throws(() => jsonSchemaGrammar('{"type":'), /it is not JSON/);
  });

  it('name the keywords that they leave to the check at the end, and the keyword that a text breaks', () => {
    const checkOf = (schema: unknown) => jsonSchemaGrammar(JSON.stringify(schema)).check;
    assert.equal(checkOf({ type: 'array', items: { enum: [1, 2] }, uniqueItems: true }), undefined);
    const check = checkOf({ properties: { tags: { type: 'array', items: { type: 'string' }, uniqueItems: true } } });
    assert.deepEqual(check?.open, ['uniqueItems (#/properties/tags)']);
    assert.equal(
      checkOf({ items: { type: 'string' }, uniqueItems: true, 'x-guidance': { checked: false } }),
      undefined,
    );
    assert.equal(check?.fault('{"tags":["a","b"]}'), null);
    assert.match(
      check?.fault('{"tags":["a","b","a"]}') ?? '',
      /^the value at "\/tags" does not fit the schema: has equal items at the indexes 0 and 2.*leaves uniqueItems \(#\/properties\/tags\) open/,
    );
    const open: [unknown, string][] = [
      [{ type: 'integer', multipleOf: 99991 }, 'multipleOf (#)'],
      [{ type: 'array', contains: { uniqueItems: true }, maxContains: 2 }, 'contains (#)'],
      [{ type: 'object', minProperties: 3 }, 'minProperties (#)'],
      [{ not: { patternProperties: { a: { type: 'null' } } } }, 'not (#)'],
      [{ type: 'string', pattern: '^a+$', maxLength: 5000 }, 'pattern (#)'],
      [{ enum: [['a']], items: { pattern: 'a.{14}b' } }, 'enum (#)'],
      [{ oneOf: [{ uniqueItems: true }, { uniqueItems: true, type: ['array', 'null'] }] }, 'oneOf (#)'],
    ];
    for (const [schema, keyword] of open)
      assert.ok(checkOf(schema)?.open.includes(keyword), JSON.stringify([schema, checkOf(schema)?.open]));
  });
});
