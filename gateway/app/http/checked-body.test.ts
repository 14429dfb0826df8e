import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from '@hono/zod-openapi';
import { checked } from './bodies.ts';

const SCHEMA = z.strictObject({
  name: z.string(),
  latency: z.strictObject({ firstTokenMs: z.int() }).optional(),
  environment: z.record(z.string(), z.string()).optional(),
});
const LONG = 'k'.repeat(60_000);
const CUT = `${'k'.repeat(100)}…`;

test('the refusal of a body names the invalid place, and shortens and escapes keys that the client chose', () => {
  const cases: [body: unknown, field: string, message: string][] = [
    [{ name: 'acme', wieght: 2 }, '/wieght', 'The body is not valid: it has the unknown field "wieght".'],
    [
      { name: 'acme', latency: { firstTokenMs: 1, b: 1 } },
      '/latency/b',
      'The body is not valid at /latency: it has the unknown field "b".',
    ],
    [{ name: 'acme', 'a/b~"': 1 }, '/a~1b~0"', 'The body is not valid: it has the unknown field "a/b~\\"".'],
    [{ name: 'acme', [LONG]: 1, more: 1 }, `/${CUT}`, `The body is not valid: it has the unknown field "${CUT}".`],
    [
      { name: 'acme', environment: { [LONG]: 1 } },
      `/environment/${CUT}`,
      `The body is not valid at /environment/${CUT}: it must be text.`,
    ],
    [{}, '/name', 'The body is not valid at /name: it is missing.'],
    [[], '', 'The body is not valid: it must be an object.'],
  ];
  for (const [body, field, message] of cases) assert.throws(() => checked(body, SCHEMA), { field, message });
});
