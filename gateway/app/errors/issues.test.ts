import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from '@hono/zod-openapi';
import { wordedIssue } from './gateway-error.ts';

test('issues of a schema are worded for people, and the message that a schema sets is kept', () => {
  const count = z.coerce.number().int().min(1).max(200);
  const cases: [z.ZodType, unknown, string][] = [
    [count, '0', 'must be at least 1'],
    [count, '500', 'must be at most 200'],
    [count, 'many', 'must be a number'],
    [count, '1.5', 'must be a whole number'],
    [z.string().min(1), '', 'must not be empty'],
    [z.string().max(3), 'four', 'must have at most 3 characters'],
    [z.enum(['a', 'b']), 'c', 'must be one of a, b'],
    [z.string(), undefined, 'is missing'],
    [z.strictObject({}), { b: 1 }, 'has the unknown field "b"'],
    [z.array(z.string()).min(1), [], 'must have at least 1 entry'],
    [z.string().regex(/a/, 'is not a cursor'), 'b', 'is not a cursor'],
    [z.string().regex(/a/), 'b', 'does not have the form that is documented'],
  ];
  for (const [schema, value, words] of cases)
    assert.equal(wordedIssue(schema.safeParse(value).error?.issues[0]), words);
});
