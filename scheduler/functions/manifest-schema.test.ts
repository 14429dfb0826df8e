import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Schema, Validator } from '@cfworker/json-schema';

const PROGRAM = fileURLToPath(new URL('manifest-schema.ts', import.meta.url));
const MANIFEST = new URL('../../functions/text-completion/pie.json', import.meta.url);

it('the schema for editors takes what the platform takes, and describes every field', () => {
  const schema = JSON.parse(execFileSync(process.execPath, [PROGRAM], { encoding: 'utf8' })) as Schema;
  const validator = new Validator(schema, '2020-12', false);
  const manifest = JSON.parse(readFileSync(MANIFEST, 'utf8'));
  assert.deepEqual(validator.validate({ $schema: './pie.schema.json', ...manifest }).errors, []);
  for (const wrong of [{ name: 'Upper' }, { limits: { cpuMs: 0 } }, { colour: 'red' }, { grants: { store: 'all' } }]) {
    assert.equal(validator.validate({ ...manifest, ...wrong }).valid, false, JSON.stringify(wrong));
  }
  const properties = Object.entries((schema.properties ?? {}) as Record<string, Schema>);
  assert.deepEqual(
    properties.filter(([name, { description }]) => name !== '$schema' && !description).map(([name]) => name),
    [],
  );
});
