import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { eventually } from '#scheduler/testing/fixture.ts';
import { startSandbox } from '../fleet/process.ts';
import { Group, Groups, groupDirectory, handDown, moveIn, openDelegation, PLATFORM_GROUP } from './cgroups.ts';
import { confinedCommand } from './command.ts';
import { LimitPassed, layersFor, probeMachine, runConfined } from './index.ts';

const SHORT = fileURLToPath(new URL('./probe-child.js', import.meta.url));
const HOG = fileURLToPath(new URL('./fixtures/hog.ts', import.meta.url));

describe('the files of a group (on a plain directory: nothing is enforced)', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-groups-'));
  after(() => rmSync(directory, { recursive: true }));
  const textOf = (group: Group, name: string) => readFileSync(path.join(group.directory, name), 'utf8');

  it('limit memory to that of guests and Node, forbid swap, and have the kernel end all processes together', () => {
    const group = new Groups(directory, ['memory']).create(512);
    assert.ok(group);
    // The group gets 256 MiB for Node in addition to the 512 MiB of its guests.
    assert.equal(textOf(group, 'memory.max'), String((512 + 256) * 2 ** 20));
    assert.equal(textOf(group, 'memory.swap.max'), '0');
    assert.equal(textOf(group, 'memory.oom.group'), '1');
    assert.ok(!existsSync(path.join(group.directory, 'cpu.weight')));
    assert.equal(group.weight, null);
  });

  it('set the CPU weight', () => {
    const group = new Groups(directory, ['cpu']).create(512);
    assert.ok(group);
    assert.ok(!existsSync(path.join(group.directory, 'memory.max')));
    assert.deepEqual([textOf(group, 'cpu.weight'), group.weight], ['100', 'usual']);
    // The share `heavy` is 3 % of the usual one, whose weight is 100.
    group.weigh('heavy');
    assert.deepEqual([textOf(group, 'cpu.weight'), group.weight], ['3', 'heavy']);
  });

  it('report the CPU time that the group has used, and that the kernel killed its processes for their memory', () => {
    const group = new Groups(directory, ['memory', 'cpu']).create(64);
    assert.ok(group);
    assert.deepEqual([group.usedMs, group.outOfMemory], [null, false]);
    writeFileSync(path.join(group.directory, 'cpu.stat'), 'usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n');
    assert.equal(group.usedMs, 2.5);
    writeFileSync(path.join(group.directory, 'memory.events'), 'low 0\noom 1\noom_kill 3\noom_group_kill 1\n');
    assert.equal(group.outOfMemory, true);
  });

  it('may be missing: the group then limits nothing', async () => {
    assert.equal(new Groups(path.join(directory, 'none'), ['memory']).create(64), null);
    const missing = new Group(path.join(directory, 'none'));
    missing.limit(64);
    missing.weigh('heavy');
    assert.deepEqual([missing.usedMs, missing.weight, missing.outOfMemory], [null, null, false]);
    await missing.remove();
  });

  it('delegate controllers one at a time and report the active ones', () => {
    const file = path.join(directory, 'cgroup.subtree_control');
    writeFileSync(file, 'pids');
    assert.deepEqual(handDown(directory, ['memory', 'cpu']), []);
    // Each write replaces the text of this plain file, so the last one remains.
    assert.equal(readFileSync(file, 'utf8'), '+cpu');
    writeFileSync(file, 'cpu memory pids');
    assert.deepEqual(handDown(directory, ['memory', 'cpu']), ['memory', 'cpu']);
  });

  it('give the platform the weight of a sandbox on each core, and the memory limit of the group above it', async () => {
    const delegated = { directory: mkdtempSync(path.join(directory, 'own-')), controllers: ['memory', 'cpu'] as const };
    writeFileSync(path.join(delegated.directory, 'cgroup.subtree_control'), 'cpu memory');
    writeFileSync(path.join(delegated.directory, 'memory.max'), '8589934592\n');
    mkdirSync(path.join(delegated.directory, PLATFORM_GROUP));
    const delegation = await openDelegation(delegated);
    assert.ok('groups' in delegation);
    assert.deepEqual(delegation.groups.controllers, ['memory', 'cpu']);
    const weight = Number(readFileSync(path.join(delegated.directory, PLATFORM_GROUP, 'cpu.weight'), 'utf8'));
    assert.equal(readFileSync(path.join(delegated.directory, PLATFORM_GROUP, 'memory.max'), 'utf8'), '8589934592');
    assert.ok(weight >= 100 && weight <= 10_000 && weight % 100 === 0);
  });
});

/** Makes a group in a real cgroup2 if this process may make groups; otherwise returns null. */
function realGroup(): string | null {
  const text = (name: string) => readFileSync(`/proc/self/${name}`, 'utf8');
  try {
    const ownGroup = groupDirectory(text('cgroup'), text('mountinfo'));
    return ownGroup && mkdtempSync(path.join(ownGroup, 'pie-test-'));
  } catch {
    return null;
  }
}

const probed = realGroup();
if (probed) await new Group(probed).remove();
const skip = probed === null && 'no cgroup2 is mounted here that this user may make groups in';

describe('in a real cgroup2 (without its controllers: no memory is bounded),', { skip }, () => {
  let directory = '';
  const started: { kill(signal: 'SIGKILL'): boolean }[] = [];
  beforeEach(() => {
    directory = realGroup() ?? '';
  });
  afterEach(async () => {
    for (const child of started.splice(0)) child.kill('SIGKILL');
    // A name with a dot is a file of the kernel or the group of a sandbox, which begins with `pie-`.
    for (const name of readdirSync(directory)) {
      if (!name.includes('.')) await new Group(path.join(directory, name)).remove();
    }
    for (const name of readdirSync(directory)) {
      if (name.startsWith('pie-')) await new Group(path.join(directory, name)).remove();
    }
    await new Group(directory).remove();
    assert.ok(!existsSync(directory));
  });

  const pidsOf = (group: string) =>
    readFileSync(path.join(group, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);
  const start = (script: string) => {
    const child = spawn('/bin/sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
    started.push(child);
    return child;
  };

  it('a confined process enters its group before it runs, and the group is removed when the process ends', async () => {
    const layers = { ...layersFor('auto', await probeMachine()), groups: new Groups(directory, []) };
    const controller = new AbortController();
    const limits = { timeoutMs: 240_000, memoryMb: 512, signal: controller.signal };
    const running = runConfined(layers, { main: HOG, args: ['1'], read: [] }, limits);
    const [name = ''] = readdirSync(directory).filter((entry) => entry.startsWith('pie-sandbox-'));
    const group = path.join(directory, name);
    const commands = () =>
      pidsOf(group).map((pid) => {
        const line = existsSync(`/proc/${pid}/cmdline`) ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : '';
        return line.split('\0')[0];
      });
    await eventually(() => commands().includes(process.execPath), 'Node runs in the group', 60_000);
    const { usedMs } = new Group(group);
    assert.ok(usedMs !== null && usedMs > 0);
    controller.abort(new Error('enough'));
    await assert.rejects(running, /enough/);
    await eventually(() => !existsSync(group), 'the group is removed', 10_000);
  });

  it('processes of a group that run in other sessions end with the group', async () => {
    const group = new Groups(directory, []).create(64);
    assert.ok(group);
    const { program, args } = confinedCommand(
      { isolation: 'process', wrapper: ['/bin/sh', '-c', 'setsid sleep 1000 & echo here; wait'], notice: null },
      { main: HOG, args: [], read: [] },
      { memoryMb: 512, group: group.directory },
    );
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] });
    const exited = once(child, 'exit');
    await once(child.stdout, 'data');
    await eventually(() => pidsOf(group.directory).length === 2, 'both processes are in the group', 10_000);
    await group.remove();
    assert.ok(!existsSync(group.directory));
    await exited;
  });

  it('a process that cannot enter its group runs outside of the group', async () => {
    const { program, args } = confinedCommand(
      { isolation: 'process', wrapper: ['/bin/echo', 'runs'], notice: null },
      { main: HOG, args: [], read: [] },
      { memoryMb: 512, group: `${directory}/it's gone` },
    );
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const [output] = await once(child.stdout.setEncoding('utf8'), 'data');
    assert.match(output, /^runs/);
  });

  it('groups of ended runtimes are emptied and removed, and other groups stay', async () => {
    const groups = new Groups(directory, []);
    const liveGroup = groups.create(64);
    assert.ok(liveGroup);
    // The name belongs to the third group of a process 1 that started at time 5. No such process lives.
    const stale = path.join(directory, 'pie-sandbox-1.5-3');
    mkdirSync(stale);
    const orphan = start('exec sleep 1000');
    const exited = once(orphan, 'exit');
    writeFileSync(path.join(stale, 'cgroup.procs'), `${orphan.pid}`);
    assert.equal(await groups.sweep(), 1);
    await exited;
    assert.deepEqual([existsSync(stale), existsSync(liveGroup.directory)], [false, true]);
  });

  it('processes of the platform move into their own group, unless a foreign process is among them', async () => {
    const child = start('echo here; exec sleep 1000');
    await once(child.stdout, 'data');
    writeFileSync(path.join(directory, 'cgroup.procs'), `${child.pid}`);
    // For process 1, the child is foreign: it is no ancestor of process 1, and it does not descend from the parent of
    // process 1, which has none.
    assert.equal(moveIn(directory, 1), child.pid);
    assert.ok(pidsOf(directory).includes(child.pid ?? 0));
    assert.equal(moveIn(directory, process.pid), null);
    assert.deepEqual(pidsOf(directory), []);
    assert.ok(pidsOf(path.join(directory, PLATFORM_GROUP)).includes(child.pid ?? 0));
  });
});

describe('a confined process whose group was ended for its memory (on a plain directory)', () => {
  it('reports that it exceeded its memory limit', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'pie-groups-'));
    const layers = { ...layersFor('process', await probeMachine()), groups: new Groups(directory, ['memory']) };
    try {
      const program = { main: SHORT, args: [], read: [] };
      const running = runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512 });
      const [name = ''] = readdirSync(directory);
      writeFileSync(path.join(directory, name, 'memory.events'), 'oom_kill 1\n');
      await assert.rejects(running, (error) => error instanceof LimitPassed && error.limit === 'memory');
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

describe('the group of a process that the system refuses to start (on a plain directory)', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-groups-'));
  after(() => rmSync(directory, { recursive: true }));

  it('is removed', async () => {
    const layers = { ...layersFor('process', await probeMachine()), groups: new Groups(directory, []) };
    // No system takes an argument of this length.
    const main = 'x'.repeat(2 ** 22);
    const running = runConfined(layers, { main, args: [], read: [] }, { timeoutMs: 240_000, memoryMb: 512 });
    await assert.rejects(running, { code: 'E2BIG' });
    const options = { layers, main, memoryMb: 512, poolMb: 64 };
    assert.throws(() => startSandbox(options as never, {} as never), { code: 'E2BIG' });
    // A removal first writes `cgroup.kill`, so that the kernel kills the remaining processes. The file keeps the plain directory from being removed.
    const removed = readdirSync(directory).map((name) => readdirSync(path.join(directory, name)));
    assert.deepEqual(removed, [['cgroup.kill'], ['cgroup.kill']]);
  });
});
