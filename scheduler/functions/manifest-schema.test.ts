import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Schema, Validator } from '@cfworker/json-schema';
import { manifestJsonSchema } from './manifest-schema.ts';

const PROGRAM = fileURLToPath(new URL('manifest-schema.ts', import.meta.url));
const MANIFEST = new URL('../../functions/text-completion/pie.json', import.meta.url);

it('the schema for editors accepts and refuses the same manifests as the platform', () => {
  const schema = JSON.parse(execFileSync(process.execPath, [PROGRAM], { encoding: 'utf8' })) as Schema;
  assert.deepEqual(
    schema,
    JSON.parse(JSON.stringify(manifestJsonSchema())),
    'the program prints the schema that the gateway serves',
  );
  const validator = new Validator(schema, '2020-12', false);
  const manifest = JSON.parse(readFileSync(MANIFEST, 'utf8'));
  const acceptedParts = [
    {},
    { $schema: './pie.schema.json' },
    { expectedPages: 12 },
    { expectedPages: { tiny: 4 }, limits: { priority: 3 } },
    { secrets: ['API_KEY'], environment: { MODE: 'fast' } },
    { latency: { firstTokenMs: 300, perTokenMs: 40 } },
    { latency: false },
  ];
  for (const more of acceptedParts)
    assert.deepEqual(validator.validate({ ...manifest, ...more }).errors, [], JSON.stringify(more));
  const refusedParts = [
    { name: 'Upper' },
    { limits: { cpuMs: 0 } },
    { limits: { priority: 4 } },
    { expectedPages: -1 },
    { expectedPages: { tiny: 'many' } },
    { colour: 'red' },
    { grants: { store: 'all' } },
    { latency: { firstTokenMs: 300 } },
    { latency: true },
  ];
  for (const more of refusedParts)
    assert.equal(validator.validate({ ...manifest, ...more }).valid, false, JSON.stringify(more));
});

it('the schema describes every field, also nested ones', () => {
  const missing: string[] = [];
  const collectMissing = (schema: Schema, path: string) => {
    for (const [name, inner] of Object.entries((schema.properties ?? {}) as Record<string, Schema>)) {
      if (!inner.description) missing.push(`${path}${name}`);
      collectMissing(inner, `${path}${name}.`);
      for (const choice of inner.anyOf ?? []) collectMissing(choice as Schema, `${path}${name}.`);
    }
  };
  collectMissing(manifestJsonSchema() as Schema, '');
  assert.deepEqual(missing, []);
});
