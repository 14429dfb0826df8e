import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { takesNothing, withoutRefused } from './parameters.ts';

describe('the parameters of tools', () => {
  it('declare nothing when they have no properties', () => {
    const nothing: (object | undefined)[] = [
      undefined,
      {},
      { type: 'object' },
      { type: 'object', properties: {} },
      { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object', properties: {}, required: [] },
    ];
    for (const parameters of nothing) assert.ok(takesNothing(parameters), JSON.stringify(parameters));
    const something: object[] = [
      { type: 'object', properties: { a: true } },
      { type: 'object', additionalProperties: { type: 'string' } },
      { type: 'object', properties: {}, additionalProperties: true },
      { type: 'object', required: ['a'] },
      { $ref: '#/$defs/a' },
      { anyOf: [{ type: 'object' }] },
    ];
    for (const parameters of something) assert.ok(!takesNothing(parameters), JSON.stringify(parameters));
  });

  it('lose only the keyword that a grammar refuses', () => {
    const schema = {
      type: 'object',
      properties: {
        unit: { enum: ['c', 'f'] },
        odd: { type: 'string', pattern: 'a(?=b)c', maxLength: 9 },
        'a: /~b': { pattern: 'x' },
        broken: 3,
        tuple: { items: [{ pattern: 'x' }], additionalItems: { pattern: 'y' } },
      },
      patternProperties: { '\\bx': true, y: true },
      additionalProperties: false,
    };
    const { properties } = schema;
    const dropped: [refusal: string, pointer: string, expected: object][] = [
      [
        'No grammar can keep x: JSON schema, #/properties/odd/pattern: regular expression "a: b", character 2: y',
        '#/properties/odd/pattern',
        { ...schema, properties: { ...properties, odd: { type: 'string', maxLength: 9 } } },
      ],
      [
        'JSON schema, #/properties/a: ~1~0b/pattern: bad: very',
        '#/properties/a: ~1~0b/pattern',
        { ...schema, properties: { ...properties, 'a: /~b': {} } },
      ],
      [
        'JSON schema, #/properties/broken: a schema must be an object',
        '#/properties/broken',
        { ...schema, properties: { ...properties, broken: true } },
      ],
      [
        'JSON schema, #/properties/tuple/prefixItems/0/pattern: bad',
        '#/properties/tuple/prefixItems/0/pattern',
        { ...schema, properties: { ...properties, tuple: { ...properties.tuple, items: [{}] } } },
      ],
      [
        'JSON schema, #/properties/tuple/items/pattern: bad',
        '#/properties/tuple/items/pattern',
        { ...schema, properties: { ...properties, tuple: { ...properties.tuple, additionalItems: {} } } },
      ],
      [
        'JSON schema, #/patternProperties/\\bx: bad',
        '#/patternProperties/\\bx',
        { type: 'object', properties, patternProperties: { y: true } },
      ],
      ['JSON schema, #/additionalProperties: bad', '#/additionalProperties', omit(schema, 'additionalProperties')],
    ];
    const before = JSON.stringify(schema);
    for (const [refusal, pointer, expected] of dropped)
      assert.deepEqual(withoutRefused(schema, refusal), { schema: expected, pointer }, refusal);
    assert.equal(JSON.stringify(schema), before);
  });

  it('lose nothing when the refusal names no keyword of theirs', () => {
    for (const refusal of [
      'JSON schema: it makes more than 20000 rules',
      'no text matches this grammar',
      'JSON schema, #: nested more than 100 deep',
      'JSON schema, #/properties/other/pattern: bad',
    ])
      assert.equal(withoutRefused({ properties: { a: { pattern: 'x' } } }, refusal), undefined, refusal);
  });
});

function omit(value: object, key: string): object {
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== key));
}
