import type { Schema } from '@cfworker/json-schema';
import type { ServedTool } from './mcp-server.ts';

const object = (properties: Record<string, Schema>, required = Object.keys(properties)) =>
  ({ type: 'object', properties, required, additionalProperties: false }) satisfies Schema;

/** Two tools: one that computes, one that may fail. */
export const tools: readonly ServedTool[] = [
  {
    name: 'add',
    description: 'Adds two numbers',
    inputSchema: object({
      a: { type: 'integer', minimum: -99, maximum: 99 },
      b: { type: 'integer', minimum: -99, maximum: 99 },
    }),
    call: ({ a, b }: { a: number; b: number }) => String(a + b),
  },
  {
    name: 'paint',
    description: 'Paints a thing',
    inputSchema: object({
      thing: { enum: ['house', 'car'] },
      colors: { type: 'array', items: { enum: ['red', 'blue'] }, minItems: 1, maxItems: 2 },
    }),
    call: ({ thing }: { thing: string }) => {
      if (thing === 'car') throw new Error('there is no car');
      return 'painted';
    },
  },
];
