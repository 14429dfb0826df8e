import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { MAX_MANIFEST_BYTES } from '#scheduler/functions/manifest.ts';
import { manifestJsonSchema } from '#scheduler/functions/manifest-schema.ts';

const PAGE = readFileSync(new URL('MANIFEST.md', import.meta.url), 'utf8');
/** Rows of the page's table, by field. */
const ROWS = new Map([...PAGE.matchAll(/^\| `([^`]+)` \|(.*)\|$/gm)].map(([, field = '', text = '']) => [field, text]));

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly additionalProperties?: Schema | false;
  readonly [keyword: string]: unknown;
}
const BOUNDS = ['minimum', 'maximum', 'maxLength', 'minItems', 'maxItems'];
const written = (number: number): string => number.toLocaleString('en-US');

/** All bounds of a field's own value, its variants and its items; nested fields have rows of their own. */
function boundsOf(schema: Schema): number[] {
  const own = BOUNDS.flatMap((keyword) => (typeof schema[keyword] === 'number' ? [schema[keyword]] : []));
  const inner = [...(schema.anyOf ?? []), schema.items, schema.additionalProperties || undefined];
  return [...own, ...inner.flatMap((one) => (one === undefined ? [] : boundsOf(one)))];
}

it('MANIFEST.md lists exactly the fields of pie.json, with their bounds and defaults', () => {
  const fields = new Map<string, Schema>();
  const addFields = ({ properties = {}, anyOf = [] }: Schema, path: string) => {
    for (const variant of anyOf) addFields(variant, path);
    for (const [name, inner] of Object.entries(properties)) {
      fields.set(path + name, inner);
      // The page describes `input` as a whole: its value is itself a schema.
      if (name !== 'input') addFields(inner, `${path}${name}.`);
    }
  };
  addFields(manifestJsonSchema() as Schema, '');
  assert.deepEqual([...ROWS.keys()].sort(), [...fields.keys()].sort());
  for (const [field, schema] of fields) {
    const numbers: readonly string[] = ROWS.get(field)?.match(/\d{1,3}(?:,\d{3})*/g) ?? [];
    for (const bound of boundsOf(schema)) assert.ok(numbers.includes(written(bound)), `${field}: ${bound}`);
  }
  for (const [name, value] of Object.entries(loadConfig({ PIE_HOME: import.meta.dirname }).runtime.limits)) {
    assert.equal(ROWS.get(`limits.${name}`)?.split('|').at(-1)?.trim(), written(value), name);
  }
  assert.ok(PAGE.includes(`${written(MAX_MANIFEST_BYTES)} bytes`));
});
