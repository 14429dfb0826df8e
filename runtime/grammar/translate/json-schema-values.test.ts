import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accepts } from '../testing/accepts.ts';
import { GrammarError } from './expression.ts';
import { jsonSchemaGrammar } from './json-schema.ts';

it('refuses `const` and `enum` integers that JSON.parse may round, at any depth', () => {
  const sources: [source: string, at: string][] = [
    ['{"const":9007199254740993}', '#/const'],
    ['{"enum":[1,9223372036854775807]}', '#/enum'],
    ['{"items":{"const":{"a":[{"b":-9007199254740993}]}}}', '#/items/const'],
    ['{"not":{"not":{"const":9007199254740993}}}', '#/not/not/const'],
  ];
  for (const [source, at] of sources) {
    assert.throws(
      () => jsonSchemaGrammar(source),
      (error) =>
        error instanceof GrammarError && error.message.includes(`${at}: `) && /past ±2\^53/.test(error.message),
      source,
    );
  }
  assert.ok(accepts({ enum: [9007199254740991, 0.1, { a: [-9007199254740991] }] }, '{"a":[-9007199254740991]}'));
});

describe('the format of a listed value', () => {
  const listed: [format: string, value: string][] = [
    ['uri', 'http://json-schema.org/draft-07/schema#'],
    ['date', '2024-02-29'],
    ['email', 'a@EXAMPLE.com'],
    ['ipv6', '::1'],
    ['color', 'red'],
  ];
  for (const [format, value] of listed) {
    it(`is tested as in the check of whole texts: ${format}`, () => {
      const text = JSON.stringify(value);
      assert.ok(accepts({ type: 'string', format, const: value }, text));
      assert.ok(accepts({ allOf: [{ format }, { enum: [value, 1] }] }, text));
      // The grammar cannot express that the strings of a list differ, so the whole text is checked as well.
      const checked = {
        prefixItems: [
          { format, const: value },
          { items: { type: 'string' }, uniqueItems: true },
        ],
      };
      assert.ok(accepts(checked, `[${text}, ["a", "b"]]`));
    });

    it(`is tested as in the check of whole texts when the value is a name: ${format}`, () => {
      const named = JSON.stringify({ [value]: null });
      const names = { propertyNames: { format }, properties: { [value]: { type: 'null' } } };
      assert.ok(accepts(names, named));
      const others = { propertyNames: { format, enum: [value] }, additionalProperties: { type: 'null' } };
      assert.ok(accepts(others, named));
      assert.ok(!accepts(others, '{"x":null}'));
    });
  }

  it('removes values without the format', () => {
    const schema = { enum: ['2024-02-29', '2023-02-29', 'never', null], format: 'date' };
    assert.ok(accepts(schema, '"2024-02-29"'));
    assert.ok(accepts(schema, 'null'));
    for (const text of ['"2023-02-29"', '"never"']) assert.ok(!accepts(schema, text));
  });

  it('is left to the check of whole texts when it is a format of names whose automaton is too large', () => {
    const schema = { propertyNames: { format: 'hostname' }, additionalProperties: { type: 'null' } };
    assert.deepEqual(jsonSchemaGrammar(JSON.stringify(schema)).check?.open, ['propertyNames (#)']);
    assert.ok(accepts(schema, '{"a.example":null}'));
    for (const text of ['{"":null}', '{"a_b":null}']) assert.ok(!accepts(schema, text), text);
  });
});
