import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { eventually } from '#scheduler/testing/fixture.ts';
import { SESSION_NICE } from './core-weight.ts';
import type { Outcomes } from './fixtures/attacker.ts';
import { crashReason, LimitPassed, layersFor, probeMachine, runConfined } from './index.ts';

const pathOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const probe = await probeMachine();
const isolations = 'command' in probe.bubblewrap ? (['namespaces', 'process'] as const) : (['process'] as const);

/** Processes with `mark` as an argument. */
async function processesWith(mark: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return pids.filter((_, index) => lines[index]?.split('\0').includes(mark));
}

/**
 * Nice value of a process, compared with that of its session where the kernel shares the cores among sessions; NaN when
 * they differ.
 */
async function niceOf(pid: string): Promise<number> {
  const read = (path: string) => readFile(path, 'utf8').catch(() => '');
  const stat = await read(`/proc/${pid}/stat`);
  const processNice = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]);
  // For other users than root, the kernel accepts few changes a second, so a session's value may be out of date.
  const isSessionNiceReliable =
    process.getuid?.() === 0 && (await read('/proc/sys/kernel/sched_autogroup_enabled')).trim() === '1';
  const sessionNice = isSessionNiceReliable
    ? Number(/nice (-?\d+)/.exec(await read(`/proc/${pid}/autogroup`))?.[1])
    : processNice;
  return sessionNice === processNice ? processNice : Number.NaN;
}

it('the reason of a crash is the line of its error', () => {
  for (const program of [
    "throw new TypeError('no\\nway')",
    "Promise.reject(new RangeError('no'))",
    "import('/missing.js')",
  ]) {
    const { stderr } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' });
    assert.match(crashReason(stderr), /^(TypeError: no|.*RangeError: no|Error.*Cannot find module.*)$/, stderr);
  }
  assert.deepEqual([crashReason(''), crashReason('bwrap: no namespace\n')], ['', 'bwrap: no namespace']);
});

for (const isolation of isolations) {
  const layers = layersFor(isolation, probe);
  const hog = (holdMb: number, limits: Parameters<typeof runConfined>[2]) =>
    runConfined(layers, { main: pathOf('fixtures/hog.ts'), args: [String(holdMb)], read: [] }, limits);

  describe(`a confined process (${isolation})`, () => {
    it('is killed at its time limit even when busy', async () => {
      await assert.rejects(
        hog(1, { timeoutMs: 1500, memoryMb: 512 }),
        (error) => error instanceof LimitPassed && error.limit === 'time',
      );
    });

    it('is killed when it exceeds its memory limit', async () => {
      await assert.rejects(
        hog(600, { timeoutMs: 240_000, memoryMb: 256 }),
        (error) => error instanceof LimitPassed && error.limit === 'memory',
      );
    });

    it('cannot exceed the memory limit of the kernel, even with fast allocations', async () => {
      const { code, errors } = await hog(4000, { timeoutMs: 240_000, memoryMb: 128 });
      assert.notEqual(code, 0);
      assert.match(errors, /Array buffer allocation failed|out of memory/);
    });

    for (const what of ['bytes', 'names']) {
      it(`is killed when it writes too many ${what}`, async () => {
        const folder = await mkdtemp(join(tmpdir(), 'pie-writer-'));
        const program = { main: pathOf('fixtures/writer.ts'), args: [what, folder], read: [], write: [folder] };
        const limits = { timeoutMs: 240_000, memoryMb: 512, files: { megabytes: 32, names: 100 } };
        try {
          await assert.rejects(
            runConfined(layers, program, limits),
            (error) => error instanceof LimitPassed && error.limit === 'files',
          );
        } finally {
          await rm(folder, { recursive: true, force: true });
        }
      });
    }

    it('is not waited for after it has answered', async () => {
      const isAnswer = (line: string) => line.startsWith('{');
      const program = { main: pathOf('fixtures/lingers.ts'), args: [], read: [] };
      const { code, output } = await runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512, isAnswer });
      assert.deepEqual({ code, output }, { code: 0, output: 'a word before\n{"ok":true}\n' });
    });

    it('answers however much it prints before', async () => {
      const isAnswer = (line: string) => line.startsWith('{');
      const program = { main: pathOf('fixtures/chatters.ts'), args: [], read: [] };
      const ended = await runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512, isAnswer });
      assert.equal(ended.code, 0);
      assert.equal(ended.output.split('\n').at(-2), '{"ok":true}');
      assert.match(ended.errors, /\nthe last error\n$/);
      for (const text of [ended.output, ended.errors]) assert.ok(text.length <= 4 * 2 ** 20, `${text.length}`);
    });

    it('yields its cores', async () => {
      // Marks the processes of this test; the hog takes the mark for a number of MiB.
      const mark = String(1 + Math.random());
      const controller = new AbortController();
      const program = { main: pathOf('fixtures/hog.ts'), args: [mark], read: [] };
      const running = runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512, signal: controller.signal });
      const reason = new Error('the test is over');
      const ended = assert.rejects(running, reason);
      await eventually(async () => {
        const all = await Promise.all((await processesWith(mark)).map(niceOf));
        return all.length > 0 && all.every((nice) => nice === SESSION_NICE.background);
      }, 'it is in the background');
      controller.abort(reason);
      await ended;
    });

    it('is killed when the caller aborts', async () => {
      const reason = new Error('called off');
      const controller = new AbortController();
      const running = hog(1, { timeoutMs: 240_000, memoryMb: 512, signal: controller.signal });
      setImmediate(() => controller.abort(reason));
      await assert.rejects(running, reason);
    });

    const orphanOptions = { skip: isolation === 'process' && probe.setpriv === null && 'setpriv is not here' };
    it('is killed with its starter, even when busy and when the starter dies early', orphanOptions, async () => {
      // Pauses between the start of the process and the death of its starter.
      for (const afterMs of [0, 0, 0, 5, 20, 400]) {
        // Distinguishes this test's processes from those of other tests.
        const mark = String(1 + Math.random());
        const script = `
          import { layersFor, probeMachine, runConfined } from ${JSON.stringify(pathOf('index.ts'))};
          const program = { main: ${JSON.stringify(pathOf('fixtures/hog.ts'))}, args: ['${mark}'], read: [] };
          await runConfined(layersFor('${isolation}', await probeMachine()), program, { timeoutMs: 120_000, memoryMb: 512 });`;
        const starter = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'ignore' });
        const exited = once(starter, 'exit');
        try {
          await eventually(async () => (await processesWith(mark)).length > 0, 'the process runs', 60_000);
          await sleep(afterMs);
        } finally {
          starter.kill('SIGKILL');
          await exited;
        }
        await eventually(async () => (await processesWith(mark)).length === 0, 'the process has ended', 30_000);
      }
    });

    it('inherits no privileges of its starter', async () => {
      const script = `
        import { layersFor, probeMachine, runConfined } from ${JSON.stringify(pathOf('index.ts'))};
        const program = { main: ${JSON.stringify(pathOf('fixtures/attacker.ts'))}, args: [process.argv[1]], read: [] };
        const layers = layersFor(${JSON.stringify(isolation)}, await probeMachine());
        const { output } = await runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512 });
        process.stdout.write(output);`;
      const starterPermissions = [
        '--permission',
        '--allow-fs-read=*',
        '--allow-net',
        '--allow-child-process',
        '--allow-worker',
      ];
      const target = JSON.stringify({ pid: process.pid, folder: '/', socket: '/none', port: 1 });
      const { stdout } = await promisify(execFile)(process.execPath, [
        ...[...starterPermissions, '--input-type=module', '-e', script, target],
      ]);
      const reached = Object.entries(JSON.parse(stdout) as Outcomes).filter(([, { refused }]) => !refused);
      assert.deepEqual(reached, []);
    });
  });
}

it('a confined process that cannot start without file descriptors fails, and its starter goes on', async () => {
  const script = `
    import { closeSync, openSync } from 'node:fs';
    import { layersFor, runConfined } from ${JSON.stringify(pathOf('index.ts'))};
    const layers = layersFor('process', { bubblewrap: { missing: 'not asked' }, setpriv: null });
    const program = { main: ${JSON.stringify(pathOf('fixtures/hog.ts'))}, args: ['1'], read: [] };
    const held = [];
    try {
      for (;;) held.push(openSync('/dev/null'));
    } catch {
      // None is left.
    }
    const failed = await runConfined(layers, program, { timeoutMs: 240_000, memoryMb: 512 }).catch((error) => error);
    for (const fd of held) closeSync(fd);
    process.stdout.write(failed.code);`;
  const limited = ['-c', 'ulimit -n 128; exec "$0" "$@"', process.execPath, '--input-type=module', '-e', script];
  assert.equal((await promisify(execFile)('/bin/sh', limited)).stdout, 'EMFILE');
});
