import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkInputSchema, SCHEMA_KEYWORDS } from './schema/compiled.ts';

/** A schema with this many objects nested within it. */
function nested(depth: number): object {
  let schema: object = { type: 'object' };
  for (let i = 0; i < depth; i++) schema = { type: 'object', properties: { a: schema } };
  return schema;
}

describe('checkInputSchema', () => {
  it('accepts 64 nested schemas and refuses more', () => {
    assert.deepEqual(checkInputSchema(nested(64)), []);
    for (const depth of [65, 20_000])
      assert.match(checkInputSchema(nested(depth))[0]?.message ?? '', /must not be nested deeper than 64 schemas/);
  });

  it('checks the inner schemas of every keyword that may have inner schemas', () => {
    const { ofOne, ofLists, ofNamed } = SCHEMA_KEYWORDS;
    const wrong = { type: 'text' };
    const schemas = [
      ...ofOne.map((keyword) => ({ [keyword]: wrong })),
      ...ofLists.map((keyword) => ({ [keyword]: [wrong] })),
      ...ofNamed.map((keyword) => ({ [keyword]: { a: wrong } })),
    ];
    for (const schema of schemas) {
      const [fault] = checkInputSchema(schema);
      assert.equal(fault?.path.at(-1), 'type', JSON.stringify(schema));
    }
  });

  it('accepts at most 128 character properties in all different patterns together, because V8 reads them slowly', () => {
    const withProperties = (count: number) => ({
      anyOf: Array.from({ length: count / 8 }, (_, i) => ({ pattern: `${i}[${String.raw`\p{Ll}`.repeat(8)}]` })),
    });
    assert.deepEqual(checkInputSchema(withProperties(128)), []);
    assert.match(checkInputSchema(withProperties(136))[0]?.message ?? '', /at most 128 character properties/);
    // A repeated pattern counts once.
    const repeated = { anyOf: Array.from({ length: 500 }, () => ({ pattern: String.raw`^\p{L}+\\p$` })) };
    assert.deepEqual(checkInputSchema(repeated), []);
  });

  it('reports at most ten faults', () => {
    const properties = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`p${i}`, { pattern: '(' }]));
    assert.equal(checkInputSchema({ properties }).length, 10);
  });

  it('accepts lists of property names in `dependencies`, as JSON Schema before 2019-09 did', () => {
    assert.deepEqual(checkInputSchema({ dependencies: { a: ['b'], c: { type: 'object' } } }), []);
    assert.deepEqual(checkInputSchema({ dependencies: { a: [1] } })[0]?.path, ['dependencies', 'a']);
  });
});
