import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Compared, differences } from './differences.ts';
import { grantsInWords } from './grants-text.ts';

const version = (parts: Partial<Compared> = {}): Compared => ({
  manifest: { name: 'story', limits: { pages: 4, cpuMs: 10 }, environment: { MODE: 'fast' } },
  componentHash: 'a'.repeat(64),
  componentBytes: 10,
  secrets: { API_KEY: 1 },
  ...parts,
});

test('differences are listed field by field, without the values of environment variables', () => {
  assert.deepEqual(differences(version(), version()), []);
  const changed = version({
    manifest: {
      name: 'story',
      limits: { pages: 8 },
      grants: { hosts: ['a.example'] },
      environment: { MODE: 'slow', TOKEN: 'hush' },
      secrets: ['API_KEY'],
    },
    componentHash: 'b'.repeat(64),
    secrets: { API_KEY: 2 },
  });
  assert.deepEqual(differences(version(), changed), [
    { field: 'component', from: 'aaaaaaaaaaaa, 10 bytes', to: 'bbbbbbbbbbbb, 10 bytes' },
    { field: 'environment.MODE', from: '(a value)', to: '(another value)' },
    { field: 'environment.TOKEN', from: null, to: '(a value)' },
    { field: 'grants.hosts', from: null, to: '["a.example"]' },
    { field: 'limits.cpuMs', from: '10', to: null },
    { field: 'limits.pages', from: '4', to: '8' },
    { field: 'secrets.API_KEY', from: 'revision 1', to: 'revision 2' },
  ]);
  assert.ok(!JSON.stringify(differences(null, changed)).includes('hush'));
  const long = version({ manifest: { name: 'story', description: 'x'.repeat(1000) } });
  const description = differences(version(), long).find(({ field }) => field === 'description');
  assert.deepEqual(description, { field: 'description', from: null, to: `${'x'.repeat(119)}…` });
});

test('grants are described in words', () => {
  assert.deepEqual(grantsInWords({ name: 'story' }), ['uses every model of the platform']);
  assert.deepEqual(
    grantsInWords({
      name: 'story',
      model: ['a', 'b'],
      grants: { hosts: ['x.example'], store: true, messaging: true, launch: '*' },
      secrets: ['API_KEY'],
      environment: { MODE: 'fast' },
    }),
    [
      'uses the models a, b',
      'sends requests to x.example',
      "reads and writes the tenant's store",
      "exchanges messages with the tenant's inferlets",
      "launches any of the tenant's functions",
      'reads the secret API_KEY',
      'is given the variable MODE',
    ],
  );
});

test('the paths of a deep manifest take little more text than the manifest', () => {
  let input: Record<string, unknown> = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`k${i}`, i]));
  for (let i = 0; i < 200; i++) input = { ['x'.repeat(150)]: input };
  const deep = version({ manifest: { name: 'story', input } });
  const found = differences(version(), deep);
  assert.ok(JSON.stringify(found).length < 2 * JSON.stringify(deep).length);
  // A change below a long path is still found.
  const changed = version({ manifest: { name: 'story', input: { ['x'.repeat(300)]: { a: 1 } } } });
  const again = version({ manifest: { name: 'story', input: { ['x'.repeat(300)]: { a: 2 } } } });
  assert.deepEqual(
    differences(changed, again).map(({ from, to }) => [from, to]),
    [['{"a":1}', '{"a":2}']],
  );
});
