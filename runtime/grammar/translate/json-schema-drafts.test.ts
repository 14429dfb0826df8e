import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accepts } from '../testing/accepts.ts';

const DRAFT_4 = 'http://json-schema.org/draft-04/schema#';
const DRAFT_7 = 'http://json-schema.org/draft-07/schema#';

/** Schemas with valid texts, and with invalid texts that are close to valid ones. */
const TABLE: [name: string, schema: unknown, taken: string[], refused: string[]][] = [
  [
    'exclusive bounds of draft 4',
    { type: 'integer', minimum: 3, exclusiveMinimum: true, maximum: 6, exclusiveMaximum: false },
    ['4', '6'],
    ['3', '7'],
  ],
  [
    'tuples of drafts 4 to 7',
    {
      type: 'array',
      items: [{ type: 'integer' }, { type: 'null' }],
      additionalItems: { type: 'boolean' },
      minItems: 1,
    },
    ['[1]', '[1,null]', '[1,null,true]'],
    ['[]', '[null]', '[1,null,1]'],
  ],
  ['closed tuples', { items: [{ type: 'integer' }], additionalItems: false }, ['[1]'], ['[1,2]', '["a"]']],
  [
    'references into a tuple',
    {
      definitions: { t: { items: [{ type: 'null' }], additionalItems: { $ref: '#/definitions/t/items/0' } } },
      $ref: '#/definitions/t',
    },
    ['[null]', '[null,null]'],
    ['[null,1]'],
  ],
  [
    'dependencies',
    {
      type: 'object',
      properties: { a: { type: 'null' }, b: { type: 'null' } },
      dependencies: { a: ['b'] },
      additionalProperties: false,
    },
    ['{}', '{"b":null}', '{"a":null,"b":null}', '{"b":null,"a":null}'],
    ['{"a":null}'],
  ],
  [
    'keywords beside $ref in draft 7',
    {
      $schema: DRAFT_7,
      definitions: { n: { type: 'integer' } },
      properties: { n: { $ref: '#/definitions/n', maximum: 3 } },
      required: ['n'],
    },
    ['{"n":9}'],
    ['{"n":"x"}'],
  ],
  [
    'ids of draft 4, and ids that draft 4 does not know',
    {
      $schema: DRAFT_4,
      id: 'http://example.com/root.json',
      definitions: {
        a: { id: '#a', type: 'integer' },
        b: { $id: 'b', anyOf: [{ $ref: '#/definitions/c' }] },
        c: { type: 'null' },
      },
      properties: { a: { $ref: '#a' }, b: { $ref: 'http://example.com/root.json#/definitions/b' } },
      required: ['a', 'b'],
    },
    ['{"a":1,"b":null}'],
    ['{"a":"x","b":null}', '{"a":1,"b":1}'],
  ],
  [
    'anchors and ids of draft 2020-12',
    {
      $id: 'https://example.com/root',
      $defs: {
        a: { $anchor: 'a', type: 'integer' },
        b: { $id: 'other', $defs: { c: { type: 'null' } }, items: { $ref: '#/$defs/c' } },
      },
      properties: { a: { $ref: '#a' }, b: { $ref: 'other' } },
      required: ['a', 'b'],
    },
    ['{"a":1,"b":[null]}'],
    ['{"a":null,"b":[]}', '{"a":1,"b":[1]}'],
  ],
  [
    'ids within constants',
    { const: { $id: 'x', items: [1], exclusiveMinimum: true } },
    ['{"$id":"x","items":[1],"exclusiveMinimum":true}'],
    ['{"$id":"x","prefixItems":[1]}'],
  ],
  [
    'lookaheads at the start of a pattern',
    { type: 'string', pattern: '^(?!x|y)(?=.*[0-9])[a-z0-9]+$' },
    ['"a1"', '"9"'],
    ['"x1"', '"y1"', '"ab"', '"a-1"'],
  ],
  [
    'lookaheads for values of other types',
    { pattern: '^(?!x)', type: ['string', 'null'] },
    ['null', '"a"'],
    ['"x"', '1'],
  ],
  [
    'classes of characters',
    { type: 'string', pattern: '^\\p{Lu}\\p{L}*\\P{L}$' },
    ['"Äb1"', '"Ω "'],
    ['"äb1"', '"Äb"', '"1"'],
  ],
  ['scripts', { type: 'string', pattern: '^\\p{Script=Greek}+$' }, ['"αω"'], ['"a"', '""']],
  [
    'patterns without the flag u, also in the check of whole texts',
    { type: 'array', items: { type: 'string', pattern: '^\\{{1,2}[^}]+}\\_\\"$' }, uniqueItems: true },
    ['["{{a}_\\""]', '["{a}_\\"","{b}_\\""]'],
    ['["{}_\\""]', '["{a}_\\"","{a}_\\""]'],
  ],
];

describe('schemas of earlier drafts', () => {
  for (const [name, schema, taken, refused] of TABLE) {
    it(`keep their meaning: ${name}`, () => {
      for (const text of taken) assert.ok(accepts(schema, text), `${text} must match`);
      for (const text of refused) assert.ok(!accepts(schema, text), `${text} must not match`);
    });
  }

  it('name the place and the keyword of what no grammar keeps', () => {
    const refused: [unknown, RegExp][] = [
      [{ properties: { a: { pattern: '(a)\\1' } } }, /JSON schema, #\/properties\/a\/pattern: regular expression/],
      [{ properties: { a: { pattern: 'x(?=y)z' } } }, /JSON schema, #\/properties\/a\/pattern: .*lookaround/],
      [{ patternProperties: { '\\bx': true } }, /JSON schema, #\/patternProperties\/\\bx: /],
      [
        { properties: { a: { $ref: 'https://example.com/other' } } },
        /JSON schema, #\/properties\/a\/\$ref: .*points elsewhere/,
      ],
      [{ items: [{ pattern: '(?<=a)b' }] }, /JSON schema, #\/prefixItems\/0\/pattern: /],
    ];
    for (const [schema, message] of refused) assert.throws(() => accepts(schema, ''), message, JSON.stringify(schema));
  });
});
