import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import fc from 'fast-check';
import { exampleOf, FieldFault, fieldsOf, inputOf, textsOf } from './form.ts';

const SCHEMA = {
  type: 'object',
  properties: {
    prompt: { type: 'string', description: 'How it begins' },
    count: { type: 'integer', minimum: 1, maximum: 9, default: 3 },
    share: { type: 'number' },
    stream: { type: 'boolean' },
    mood: { enum: ['happy', 'sad', 3] },
    parts: { type: 'array', items: { type: 'string' } },
    any: { description: 'Whatever' },
  },
  required: ['prompt'],
};
const fields = fieldsOf(SCHEMA) ?? assert.fail();

test('a form has a field of the right kind for each property', () => {
  assert.deepEqual(
    fields.map(({ name, kind, required }) => [name, kind, required]),
    [
      ['prompt', 'text', true],
      ['count', 'number', false],
      ['share', 'number', false],
      ['stream', 'flag', false],
      ['mood', 'choice', false],
      ['parts', 'json', false],
      ['any', 'json', false],
    ],
  );
  const count = fields.find(({ name }) => name === 'count');
  assert.deepEqual([count?.minimum, count?.maximum, count?.fallback, count?.isInteger], [1, 9, '3', true]);
  for (const schema of [undefined, {}, { type: 'string' }, { type: 'object', properties: {} }, { type: 'array' }])
    assert.equal(fieldsOf(schema), null);
});

test('a form that was filled from an input yields the same input', () => {
  const input = fc.record(
    {
      prompt: fc.string(),
      count: fc.integer(),
      share: fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => (Object.is(value, -0) ? 0 : value)),
      stream: fc.boolean(),
      mood: fc.constantFrom('happy', 'sad', 3),
      parts: fc.array(fc.string()),
      any: fc.jsonValue(),
    },
    { requiredKeys: ['prompt'] },
  );
  fc.assert(
    fc.property(input, (given) => {
      const texts = textsOf(fields, given) ?? assert.fail();
      assert.deepEqual(JSON.parse(JSON.stringify(inputOf(fields, texts))), JSON.parse(JSON.stringify(given)));
    }),
    { seed: 12 },
  );
});

test('an input that no form can yield has no texts, so that it is edited as JSON', () => {
  for (const input of [null, 1, [], { prompt: 'x', other: 1 }, { count: 1 }, { prompt: 1 }, { prompt: '', count: 'x' }])
    assert.equal(textsOf(fields, input), null, JSON.stringify(input));
  // A form cannot tell an empty optional text from a missing one.
  assert.equal(textsOf(fieldsOf({ type: 'object', properties: { a: { type: 'string' } } }) ?? [], { a: '' }), null);
});

test('a text that is not a value of its field is refused with the name of the field', () => {
  const refused = (texts: Record<string, string>) => {
    try {
      inputOf(fields, texts);
      return null;
    } catch (error) {
      return error instanceof FieldFault ? error.field : assert.fail();
    }
  };
  assert.equal(refused({ prompt: 'x' }), null);
  assert.equal(refused({ prompt: 'x', count: 'three' }), 'count');
  assert.equal(refused({ prompt: 'x', parts: '[' }), 'parts');
  const input = inputOf(fieldsOf({ type: 'object', properties: JSON.parse('{"__proto__":{}}') }) ?? [], {
    ['__proto__']: '{"a":1}',
  });
  assert.equal((input as { a?: number }).a, undefined, 'no form changes a prototype');
});

test('the example of each bundled function fills its form', () => {
  const folder = new URL('../../../../functions/', import.meta.url);
  let forms = 0;
  for (const name of readdirSync(folder)) {
    let manifest: { input?: unknown };
    try {
      manifest = JSON.parse(readFileSync(new URL(`${name}/pie.json`, folder), 'utf8'));
    } catch {
      continue; // A folder without a function.
    }
    const formFields = fieldsOf(manifest.input);
    if (formFields === null) continue;
    forms++;
    const example = exampleOf(manifest.input);
    if (example !== undefined) assert.ok(textsOf(formFields, example), name);
  }
  assert.ok(forms > 20, `${forms} forms`);
});
