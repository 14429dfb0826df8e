import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { activeLimits, openKernelShares } from './kernel-limits.ts';

describe('the limits that the kernel enforces', () => {
  it('are cgroups where both controllers are delegated, without a notice', () => {
    assert.deepEqual(activeLimits(['memory', 'cpu'], null, null), { memory: 'cgroup', demotion: 'cgroup' });
  });

  it('are rlimits and sessions otherwise, with a notice about the reason and how to get cgroups', () => {
    const { notice, ...active } = activeLimits([], 'no cgroup v2 is mounted', null);
    assert.deepEqual(active, { memory: 'rlimit', demotion: 'autogroup' });
    assert.match(
      notice ?? '',
      /^No cgroup bounds .* lowers the priority of their sessions \(autogroup\)\. Why: no cgroup v2 is mounted\. To get cgroups, .*Delegate=yes.*container/,
    );
  });

  it('name the controller that is missing', () => {
    const { notice, ...active } = activeLimits(['memory'], null, 'the kernel groups no sessions');
    assert.deepEqual(active, { memory: 'cgroup', demotion: 'none' });
    assert.match(
      notice ?? '',
      /^Nothing but their own slices .*: the kernel groups no sessions\. Why: .* only the memory controller/,
    );
  });

  it('are found on this machine', async () => {
    const { groups, autogroup, active } = await openKernelShares();
    autogroup?.close();
    assert.equal(active.memory, groups?.controllers.includes('memory') ? 'cgroup' : 'rlimit');
    const demotionBySessions = autogroup ? 'autogroup' : 'none';
    assert.equal(active.demotion, groups?.controllers.includes('cpu') ? 'cgroup' : demotionBySessions);
  });
});
