import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { StoredModule } from './sandbox.ts';
import { SharedModules } from './shared-modules.ts';

it('modules that more tenants use come before modules that more programs use', () => {
  const moduleOf = (hash: string): StoredModule => ({ hash, bytes: new Uint8Array(10) }) as StoredModule;
  const [engine, junk, own] = [moduleOf('engine'), moduleOf('junk'), moduleOf('own')];
  const shared = new SharedModules(10);
  for (let i = 0; i < 3; i++) shared.learn(`tenant-${i}`, { key: 'program', modules: [engine, own] } as never);
  for (let i = 0; i < 20; i++) {
    for (const tenant of ['evil', 'other']) shared.learn(tenant, { key: `program-${i}`, modules: [junk] } as never);
  }
  assert.deepEqual(shared.modules(), [engine]);
});
