import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { includesScope, includesScopes, SCOPES } from './rules.ts';

describe('scopes', () => {
  it('admin includes invoke and deploy, operator includes all, and other scopes include only themselves', () => {
    const includedScopes = Object.fromEntries(
      SCOPES.map((own) => [own, SCOPES.filter((scope) => includesScope([own], scope))]),
    );
    assert.deepEqual(includedScopes, {
      invoke: ['invoke'],
      deploy: ['deploy'],
      admin: ['invoke', 'deploy', 'admin'],
      operator: ['invoke', 'deploy', 'admin', 'operator'],
    });
    assert.ok(includesScopes(['invoke', 'deploy'], ['deploy', 'invoke']));
    assert.ok(!includesScopes(['invoke', 'deploy'], ['admin']));
    assert.ok(!includesScopes(['admin'], ['invoke', 'operator']));
    assert.ok(!includesScope([], 'invoke'));
  });
});
