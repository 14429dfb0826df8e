import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { eventually } from '#scheduler/testing/fixture.ts';
import { SharedThread } from '../channel/shared-thread.ts';
import { hostTable } from '../host/table.ts';
import { Groups } from '../sandboxes/cgroups.ts';
import { machineLayers } from '../sandboxes/index.ts';
import { AutogroupWriter, autogroupMissing, sessionWeight } from '../sandboxes/kernel-limits.ts';
import { CoreWatch, coreShares } from './core-watch.ts';
import { startSandbox } from './process.ts';

const HOG = fileURLToPath(new URL('../sandboxes/fixtures/hog.ts', import.meta.url));
const layers = await machineLayers();

/** Starts a sandbox whose main program computes forever and reads no message of the runtime. */
const startSpinning = () =>
  startSandbox(
    { layers, host: hostTable, thread: new SharedThread(), memoryMb: 512, poolMb: 1, main: HOG },
    { message: () => undefined, ended: () => undefined },
  );

function usedMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  // A clock tick is 10 ms.
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

const isSpinning = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(HOG) && usedMs(pid) > 300;
  } catch {
    return false;
  }
};

/** The first core that this process may use. */
const firstCore = /^Cpus_allowed_list:\s*(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0';

const missing = await autogroupMissing();
const skip = missing !== null && missing;

describe('a sandbox that spins (by autogroup)', { skip, timeout: 240_000 }, () => {
  it("gets under a third of another session's time once it is heavy, and its usual weight when it stops", async () => {
    const sandbox = startSpinning();
    const other = spawn('taskset', ['-c', firstCore, process.execPath, HOG, '1'], {
      detached: true,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let watch: CoreWatch | null = null;
    try {
      await once(other.stdout, 'data');
      await eventually(() => isSpinning(sandbox.pid), 'the sandbox spins', 60_000);
      const { pid } = sandbox;
      execFileSync('taskset', ['-acp', firstCore, `${pid}`]);
      /** Measures the CPU time of both sessions until the other session has received 1 s. */
      const measureTimes = async () => {
        const [sandboxBeforeMs, otherBeforeMs] = [usedMs(pid), usedMs(other.pid ?? 0)];
        await eventually(() => usedMs(other.pid ?? 0) - otherBeforeMs >= 1000, 'the other session computes', 60_000);
        return { sandboxMs: usedMs(pid) - sandboxBeforeMs, otherMs: usedMs(other.pid ?? 0) - otherBeforeMs };
      };
      const before = await measureTimes();
      assert.ok(before.sandboxMs * 3 > before.otherMs, JSON.stringify(before));
      const sandboxes = [{ tenant: 'a', process: { pid, group: null } }];
      watch = new CoreWatch(
        () => sandboxes,
        coreShares({ groups: null, autogroup: new AutogroupWriter() }) ?? assert.fail(),
      );
      await eventually(() => sessionWeight(pid) === 'heavy', 'the sandbox is heavy', 60_000);
      const yielding = await measureTimes();
      assert.ok(yielding.sandboxMs * 3 <= yielding.otherMs, JSON.stringify(yielding));
      assert.equal(sessionWeight(pid), 'heavy');
      process.kill(pid, 'SIGSTOP');
      await eventually(() => sessionWeight(pid) === 'usual', 'the sandbox has its usual weight', 60_000);
    } finally {
      watch?.close();
      sandbox.kill('the test ends');
      other.kill('SIGKILL');
    }
  });
});

describe('a sandbox that spins (in a group that is a plain directory, so the kernel enforces no weight)', () => {
  it('gets a low weight, and the usual weight when it stops', () => spinThenStop(1));

  it('gets its usual weight back when it stops, although it received only a part of a core', () => spinThenStop(0.15));

  it('gives a low weight to the next sandbox of its tenant, and not to other tenants', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'pie-core-watch-'));
    const groups = new Groups(directory, ['cpu']);
    const [hog, next, other] = [groups.create(64), groups.create(64), groups.create(64)];
    assert.ok(hog && next && other);
    const began = performance.now();
    // No processes have these ids. `times` pretends that the process with id 1 computes.
    const times = ({ pid }: { pid: number }) => ({
      usedMs: pid === 1 ? performance.now() - began : 0,
      waitedMs: 0,
      ready: false,
    });
    const sandboxes = [{ tenant: 'a', process: { pid: 1, group: hog } }];
    const shares = coreShares({ groups, autogroup: null }) ?? assert.fail();
    const watch = new CoreWatch(() => sandboxes, { ...shares, times });
    try {
      await eventually(() => hog.weight === 'heavy', 'the sandbox is heavy', 60_000);
      const following = { tenant: 'a', process: { pid: 2, group: next } };
      sandboxes.splice(0, 1, following, { tenant: 'b', process: { pid: 3, group: other } });
      watch.changed(following);
      assert.equal(next.weight, 'heavy');
      assert.equal(other.weight, 'usual');
      await eventually(() => next.weight === 'usual', 'the idle sandbox has its usual weight', 60_000);
    } finally {
      watch.close();
      rmSync(directory, { recursive: true });
    }
  });

  /** @param part the fraction of a core that the sandbox receives while it spins; for the rest of the time it waits for a core */
  const spinThenStop = async (part: number): Promise<void> => {
    const directory = mkdtempSync(path.join(tmpdir(), 'pie-core-watch-'));
    const groups = new Groups(directory, ['cpu']);
    const group = groups.create(64);
    assert.ok(group);
    let isSpinning = true;
    const began = performance.now();
    let spunMs = 0;
    const times = () => {
      if (isSpinning) spunMs = performance.now() - began;
      return { usedMs: spunMs * part, waitedMs: spunMs * (1 - part), ready: isSpinning };
    };
    const sandboxes = [{ tenant: 'a', process: { pid: 0, group } }];
    const shares = coreShares({ groups, autogroup: null }) ?? assert.fail();
    const watch = new CoreWatch(() => sandboxes, { ...shares, times });
    try {
      assert.equal(group.weight, 'usual');
      await eventually(() => group.weight === 'heavy', 'the sandbox is heavy', 60_000);
      isSpinning = false;
      await eventually(() => group.weight === 'usual', 'the sandbox has its usual weight', 60_000);
    } finally {
      watch.close();
      rmSync(directory, { recursive: true });
    }
  };
});
