import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Schema, Validator } from '@cfworker/json-schema';
import { callFunction, failingFunction, refusedInput } from '#test/harness/functions.ts';
import { seeded } from '#test/harness/random.ts';

const SEED = 21;
const SCHEMAS = process.env.PIE_TEST_ALL ? 100 : 40;
/** Number of concurrent invocations. */
const WIDTH = 10;

function randomSchema(pick: (below: number) => number, depth: number): Schema {
  const kinds = depth > 0 ? 10 : 6;
  switch (pick(kinds)) {
    case 0: {
      const minimum = pick(2000) - 1000;
      return { type: 'integer', minimum, maximum: minimum + pick(500) };
    }
    case 1:
      return { type: 'boolean' };
    case 2:
      return { type: 'null' };
    case 3:
      return { enum: ['cat', 'ünï\n"x"', 7, -0.5, true, null, { a: [1] }].slice(pick(3), 4 + pick(4)) };
    case 4: {
      const minLength = pick(3);
      return { type: 'string', minLength, maxLength: minLength + pick(8) };
    }
    case 5:
      return { type: 'string', pattern: ['^[a-z]{2,4}$', '^\\d{3}-\\d{4}$', '^(yes|no)!?$'][pick(3)] as string };
    case 6: {
      const minItems = pick(2);
      return { type: 'array', items: randomSchema(pick, depth - 1), minItems, maxItems: minItems + pick(3) };
    }
    case 7:
      return { anyOf: [randomSchema(pick, depth - 1), randomSchema(pick, depth - 1)] };
    default: {
      const names = ['a', 'name', 'x y', 'größe', 'list'].slice(0, 1 + pick(5));
      const properties = Object.fromEntries(names.map((name) => [name, randomSchema(pick, depth - 1)]));
      const required = names.filter(() => pick(3) > 0);
      return { type: 'object', properties, required, additionalProperties: false };
    }
  }
}

describe('json-schema', () => {
  it(`writes JSON that fits ${SCHEMAS} random schemas (seed ${SEED})`, async () => {
    const pick = seeded(SEED);
    const schemas = Array.from({ length: SCHEMAS }, () => randomSchema(pick, 3));
    const kinds = new Set<string>();
    for (let first = 0; first < SCHEMAS; first += WIDTH) {
      await Promise.all(
        schemas.slice(first, first + WIDTH).map(async (schema, i) => {
          const input = { schema, prompt: 'As JSON: ', maxTokens: 1000, seed: first + i };
          const { output } = await callFunction('json-schema', input);
          const { valid, errors } = new Validator(schema, '2020-12').validate(output.value);
          assert.ok(valid, JSON.stringify({ schema, value: output.value, errors }));
          kinds.add(output.value === null ? 'null' : Array.isArray(output.value) ? 'array' : typeof output.value);
        }),
      );
    }
    assert.deepEqual([...kinds].sort(), ['array', 'boolean', 'null', 'number', 'object', 'string']);
  });

  it('ends with an error that names the keyword when the complete text fails the final check', async () => {
    // No text can pass the final check: two empty strings are never different.
    const schema = {
      type: 'array',
      items: { type: 'string', maxLength: 0 },
      minItems: 2,
      maxItems: 2,
      uniqueItems: true,
    };
    const failed = await failingFunction('json-schema', { schema, maxTokens: 50 });
    assert.match(failed.message, /^invalid-argument: .*has equal items.*uniqueItems \(#\)/);
    const { output } = await callFunction('json-schema', { schema: { ...schema, uniqueItems: false }, maxTokens: 50 });
    assert.deepEqual(output.value, ['', '']);
  });

  it('reports incomplete JSON, and refuses schemas that can be neither enforced nor checked', async () => {
    const schema = { type: 'array', items: { type: 'string' }, minItems: 50 };
    const cut = await failingFunction('json-schema', { schema, maxTokens: 10 });
    assert.match(cut.message, /^limit-exceeded: .*10 tokens \(max-tokens\)/);
    const full = await failingFunction('json-schema', {
      schema,
      prompt: 'The dog was happy. '.repeat(48),
      maxTokens: 256,
    });
    assert.match(full.message, /^limit-exceeded: .* \(context-length\)/);
    const refused = await failingFunction('json-schema', { schema: { type: 'string', pattern: '(a)\\1' } });
    assert.match(refused.message, /^invalid-argument: .*#\/pattern: /);
    assert.deepEqual(await refusedInput('json-schema', { prompt: 'x' }), { status: 422, field: '/schema' });
  });
});
