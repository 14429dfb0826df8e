import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { Groups } from '../sandboxes/cgroups.ts';
import { coreShares, processTimes } from './core-watch.ts';

const skip = processTimes(process.pid) === null && 'this kernel reports no times of a process';

test('a process is ready while it computes, and not while it waits for input or once it has ended', {
  skip,
}, async () => {
  const cpuMs = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
  const beforeMs = cpuMs();
  const times = processTimes(process.pid) ?? assert.fail();
  const afterMs = cpuMs();
  assert.equal(times.ready, true);
  // The kernel counts user time and system time in whole ticks of 10 ms each.
  assert.ok(times.usedMs > beforeMs - 30 && times.usedMs < afterMs + 30, `${beforeMs} ${times.usedMs} ${afterMs}`);
  const waiting = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] });
  const { pid } = waiting;
  assert.ok(pid);
  await eventually(() => processTimes(pid)?.ready === false, 'the process waits');
  waiting.stdin.end();
  await once(waiting, 'exit');
  assert.equal(processTimes(pid), null);
});

test('a group reports CPU time after its process has ended; `times` returns null without a kernel report', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-core-shares-'));
  try {
    const groups = new Groups(directory, ['cpu']);
    const group = groups.create(64) ?? assert.fail();
    const shares = coreShares({ groups, autogroup: null }) ?? assert.fail();
    // No process has this id: it is above the kernel's maximum.
    const pid = 2 ** 22 + 1;
    assert.equal(shares.times({ pid, group }), null);
    assert.equal(shares.times({ pid, group: null }), null);
    writeFileSync(path.join(group.directory, 'cpu.stat'), 'usage_usec 2500\nuser_usec 2000\n');
    assert.deepEqual(shares.times({ pid, group }), { usedMs: 2.5, waitedMs: 0, ready: false });
    shares.weigh({ pid, group }, 'heavy');
    assert.equal(shares.weight({ pid, group }), 'heavy');
    if (skip === false) assert.equal(shares.times({ pid: process.pid, group })?.ready, true);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('`coreShares` returns null when there is neither a group controller for cores nor an autogroup', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-core-shares-'));
  try {
    assert.equal(coreShares({ groups: new Groups(directory, ['memory']), autogroup: null }), null);
    assert.equal(coreShares({ groups: null, autogroup: null }), null);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
