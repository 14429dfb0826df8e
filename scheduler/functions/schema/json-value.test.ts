import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { jsonValue } from './json-value.ts';

const character = fc.constantFrom('a', 'b', '1', 'u', '\\', '"', '\n', 'é', '城', ' ', ':', '\u0000');
const key = fc.oneof(fc.string({ unit: character, maxLength: 3 }), fc.constant('__proto__'));
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 4 },
    fc.string({ unit: character, maxLength: 6 }),
    fc.integer(),
    fc.constant(null),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('json')), { maxLength: 5 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

/** The JSON string literal of a text, in which random characters are escaped. */
const quoted = (text: string, chance: () => number): string =>
  `"${Array.from(text, (one) => {
    const escapes = [...one].map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    return chance() < 0.4 ? escapes : JSON.stringify(one).slice(1, -1);
  }).join('')}"`;

function textOf(value: unknown, chance: () => number): string {
  if (typeof value === 'string') return quoted(value, chance);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((one) => textOf(one, chance)).join(' , ')}]`;
  const space = chance() < 0.5 ? '\n ' : '';
  const members = Object.entries(value).map(([name, one]) => `${quoted(name, chance)}${space}:${textOf(one, chance)}`);
  return `{${members.join(',')}}`;
}

test('parsed keys are those of the text, whichever keys the process read before', () => {
  // Objects with these keys make V8 misread later keys; see `jsonValue`.
  for (const poison of ['\\', 'b\\', '\\u', 'a\\', '1\\']) {
    for (const before of ['', '"a":1,', '"type":1,']) JSON.parse(`{${before}${JSON.stringify(poison)}:1}`);
  }
  const [text, plain] = ['{"type":1,"\\u00e9":2}', '{"type":1,"é":2}'];
  assert.equal(JSON.stringify(jsonValue(text)), plain);
  fc.assert(
    fc.property(json, fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })), (value, chances) => {
      const chance = () => chances.next().value as number;
      const parsed = jsonValue(textOf(value, chance));
      assert.deepEqual(parsed, value);
      assert.equal(JSON.stringify(parsed), JSON.stringify(value), 'the order of the keys');
    }),
    { numRuns: 3000 },
  );
});

test('of equal keys the last one counts, however they are written', () => {
  assert.deepEqual(jsonValue('{"\\u0031":1,"1":2}'), { 1: 2 });
  assert.deepEqual(jsonValue('{"a\\n":1,"b":2,"a\\u000a":3}'), { 'a\n': 3, b: 2 });
});

test('a syntax error names its position in the original text, and `revive` gets the text of each number', () => {
  assert.throws(() => jsonValue('{"\\n":1,]'), /position 8/);
  for (const text of ['"\\', '{"a\\":1}', '{"a\\x":1}', '"\\u12"']) assert.throws(() => jsonValue(text), SyntaxError);
  const sources: unknown[] = [];
  jsonValue('{"\\"":1e2,"b":[2.0]}', (value, source) => {
    if (typeof value === 'number') sources.push(source);
    return value;
  });
  assert.deepEqual(sources, ['1e2', '2.0']);
});
