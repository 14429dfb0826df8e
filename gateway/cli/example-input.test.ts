import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { acceptedExample, exampleInput } from './input.ts';

describe('exampleInput', () => {
  it('is the example of the schema if it has one', () => {
    assert.deepEqual(exampleInput({ name: 'f', input: { examples: [{ prompt: 'Once' }] } }), { prompt: 'Once' });
  });

  it('fills in the required fields otherwise', () => {
    const input = {
      required: ['text', 'count', 'mode', 'all', 'size'],
      properties: {
        size: { type: 'integer', examples: [], enum: [] },
        text: { type: 'string' },
        count: { type: 'integer', default: 3 },
        mode: { enum: ['fast', 'slow'] },
        all: { type: 'boolean' },
        optional: { type: 'string' },
      },
    };
    assert.deepEqual(exampleInput({ name: 'f', input }), {
      text: '…',
      count: 3,
      mode: 'fast',
      all: true,
      size: 1,
    });
  });

  it('is empty without a schema', () => assert.deepEqual(exampleInput({ name: 'f' }), {}));
});

describe('acceptedExample', () => {
  const assertExample = async (input: Record<string, unknown>, expected: unknown) =>
    assert.deepEqual(await acceptedExample({ name: 'f', input }), expected);

  it('follows the types, bounds and required members of nested schemas', async () => {
    await assertExample({ type: 'array', items: { type: 'string' }, minItems: 1 }, ['…']);
    await assertExample({ type: 'string', minLength: 3 }, '………');
    const point = { type: 'object', required: ['x'], properties: { x: { type: 'number', exclusiveMinimum: 4 } } };
    await assertExample({ required: ['at', 'tag'], properties: { at: point } }, { at: { x: 5 }, tag: '…' });
    await assertExample({ properties: { n: { type: ['null', 'string'] } }, required: ['n'] }, { n: null });
    await assertExample({ anyOf: [{ const: 7 }, { type: 'string' }] }, 7);
    await assertExample({ required: ['size'], properties: { size: { type: 'integer', maximum: 0 } } }, { size: 0 });
    await assertExample({ type: 'integer', minimum: 1.5 }, 2);
    await assertExample({ type: 'integer', maximum: 0.5 }, 0);
    await assertExample({ type: 'number', minimum: 1.5 }, 1.5);
  });

  it('is undefined when the schema refuses the example, or the check of it does not end', async () => {
    await assertExample({ required: ['id'], properties: { id: { type: 'string', pattern: '^[a-z]{3}$' } } }, undefined);
    await assertExample({ examples: [{}], required: ['id'] }, undefined);
    await assertExample({ type: 'string', minLength: 1e9 }, undefined);
    await assertExample({ $ref: '#' }, undefined);
  });
});
