import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { delegatedGroup, groupDirectory } from './cgroups.ts';

const line = (root: string, point: string, type = 'cgroup2') =>
  `31 23 0:28 ${root} ${point} rw,relatime shared:4 - ${type} ${type} rw,nsdelegate`;

describe('the group of a process', () => {
  it('is found below the mount of cgroup2', () => {
    const mounts = [line('/', '/', 'ext4'), line('/', '/sys/fs/cgroup')].join('\n');
    assert.equal(groupDirectory('0::/user.slice/pie.scope\n', mounts), '/sys/fs/cgroup/user.slice/pie.scope');
    assert.equal(groupDirectory('0::/\n', mounts), '/sys/fs/cgroup');
  });

  it('is found beside controllers of cgroup v1, in the mount that shows it', () => {
    const mounts = [line('/', '/sys/fs/cgroup/cpu', 'cgroup'), line('/other', '/a'), line('/pie', '/b\\040c')].join(
      '\n',
    );
    assert.equal(groupDirectory('4:memory:/x\n0::/pie/inner\n', mounts), '/b c/inner');
    assert.equal(groupDirectory('4:memory:/x\n0::/pies\n', mounts), null);
  });

  it('is null without cgroup2, and outside of the namespace', () => {
    assert.equal(groupDirectory('4:memory:/x\n', line('/', '/sys/fs/cgroup')), null);
    assert.equal(groupDirectory('0::/pie\n', line('/', '/sys/fs/cgroup', 'cgroup')), null);
    assert.equal(groupDirectory('0::/../pie\n', line('/', '/sys/fs/cgroup')), null);
  });
});

describe('a delegated group (on a plain directory)', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-own-group-'));
  after(() => rmSync(directory, { recursive: true }));
  const put = (name: string, text: string) => writeFileSync(path.join(directory, name), text);

  it('has controllers, is not the root, and is writable', () => {
    assert.deepEqual(delegatedGroup(directory), {
      missing: `${directory} has neither the memory nor the cpu controller`,
    });
    put('cgroup.controllers', 'cpuset cpu io memory pids\n');
    assert.deepEqual(delegatedGroup(directory), { missing: `${directory} is the machine's root group` });
    put('cgroup.events', 'populated 1\n');
    assert.deepEqual(delegatedGroup(directory), { missing: `${directory} is not writable` });
    put('cgroup.procs', '');
    put('cgroup.subtree_control', '');
    assert.deepEqual(delegatedGroup(directory), { directory, controllers: ['memory', 'cpu'] });
    put('cgroup.controllers', 'pids memory\n');
    assert.deepEqual(delegatedGroup(directory), { directory, controllers: ['memory'] });
  });
});
