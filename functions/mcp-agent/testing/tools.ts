import type { Schema } from '@cfworker/json-schema';
import type { ServedTool } from './mcp-server.ts';

const object = (properties: Record<string, Schema>, required = Object.keys(properties)) =>
  ({ type: 'object', properties, required, additionalProperties: false }) satisfies Schema;

/** Two tools: `add` always succeeds, and `paint` fails for a car. */
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

const coordinate: Schema = { type: 'integer', minimum: -9, maximum: 9 };

/** Tools whose schemas refer to a definition (`move`) and to the schema itself (`plant`). `move` also has a property that is named `$ref`. */
export const referringTools: readonly ServedTool[] = [
  {
    name: 'move',
    description: 'Moves a thing',
    inputSchema: {
      ...object({ to: { $ref: '#/$defs/Point' }, $ref: { const: '#/$defs/Point' } }),
      $defs: { Point: object({ x: coordinate, y: { $ref: '#/$defs/Point/properties/x' } }) },
    },
    call: () => 'moved',
  },
  {
    name: 'plant',
    description: 'Plants a tree',
    inputSchema: {
      $id: 'https://example.com/tree',
      ...object({ name: { enum: ['a', 'b'] }, children: { type: 'array', items: { $ref: '#' }, maxItems: 2 } }),
    },
    call: () => 'planted',
  },
];
