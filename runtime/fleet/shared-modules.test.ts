import assert from 'node:assert/strict';
import { it } from 'node:test';
import { SharedModules } from './fleet.ts';
import type { StoredModule, StoredProgram } from './sandbox.ts';

const moduleOf = (hash: string, size = 10) => ({ hash, bytes: new Uint8Array(size) }) as StoredModule;
const programOf = (key: string, modules: StoredModule[]) => ({ key, modules }) as never as StoredProgram;

it('modules that more tenants use come before modules that more programs use', () => {
  const [engine, junk] = [moduleOf('engine'), moduleOf('junk')];
  // The bound of 10 bytes has room for one module.
  const shared = new SharedModules(10);
  for (let i = 0; i < 3; i++) shared.learn(`tenant-${i}`, programOf('program', [engine]));
  for (let i = 0; i < 20; i++) {
    for (const tenant of ['evil', 'other']) shared.learn(tenant, programOf(`program-${i}`, [junk]));
  }
  assert.deepEqual(shared.modules(), [engine]);
});

it('of two modules with equally many tenants, the one that more programs use comes first', () => {
  const [rare, common] = [moduleOf('rare'), moduleOf('common')];
  const shared = new SharedModules(20);
  for (const tenant of ['a', 'b']) {
    // A program that is learned again still counts once.
    for (let i = 0; i < 5; i++) shared.learn(tenant, programOf('first', [rare]));
    for (const key of ['second', 'third']) shared.learn(tenant, programOf(key, [common]));
  }
  assert.deepEqual(shared.modules(), [common, rare]);
});

it('a module of one tenant is never shared, and a module that does not fit leaves room for smaller ones', () => {
  const [small, large, secret] = [moduleOf('small', 4), moduleOf('large', 11), moduleOf('secret', 1)];
  const shared = new SharedModules(10);
  for (const tenant of ['a', 'b']) shared.learn(tenant, programOf('program', [large, small]));
  for (const key of ['one', 'two', 'three']) shared.learn('a', programOf(key, [secret]));
  assert.deepEqual(shared.modules(), [small]);
});

it('the modules of the oldest program are forgotten when there are too many programs', () => {
  const [old, engine] = [moduleOf('old'), moduleOf('engine')];
  const shared = new SharedModules(20);
  for (const tenant of ['a', 'b']) shared.learn(tenant, programOf('old', [old]));
  // 256 programs are remembered; the program of tenant `a` is the oldest.
  for (let i = 0; i < 254; i++) shared.learn(`tenant-${i}`, programOf('program', [engine]));
  assert.deepEqual(shared.modules(), [engine, old]);
  shared.learn('tenant-254', programOf('program', [engine]));
  assert.deepEqual(shared.modules(), [engine]);
});
