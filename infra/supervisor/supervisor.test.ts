import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { Child, type ChildSpec } from './child.ts';
import { Supervisor, type SupervisorEvent } from './supervisor.ts';

const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-supervisor-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const pathOf = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** A small program that behaves like the platform's: it prints a ready line, holds the lifeline, and ends on SIGTERM. */
function program(name: string, body = ''): string {
  const file = path.join(directory, `${name}.ts`);
  writeFileSync(
    file,
    `import { exitWithParent } from '${pathOf('../lifeline.ts')}';
     import { openLog } from '${pathOf('../log.ts')}';
     import { announceReady } from '${pathOf('../lifeline.ts')}';
     exitWithParent(openLog('${name}'), () => undefined);
     process.on('SIGTERM', () => process.exit(0));
     setInterval(() => undefined, 1000);
     ${body}
     announceReady();`,
  );
  return file;
}

const spec = (name: string, file: string, overrides: Partial<ChildSpec> = {}): ChildSpec => ({
  name,
  command: process.execPath,
  args: [file],
  ready: 'line',
  readyTimeoutMs: 60_000,
  stop: 'signal',
  stopTimeoutMs: 2000,
  ...overrides,
});

/** A list of stages that names no child: `stop` then stops all children together. */
const NO_STAGES = [] as const;

function supervise() {
  const decisions = new CollectedLog();
  const events: SupervisorEvent[] = [];
  const waiting = new Set<() => void>();
  const supervisor = new Supervisor({
    logsDirectory: path.join(directory, 'logs'),
    log: silentLog,
    decisions,
    report: (event) => {
      events.push(event);
      for (const wake of waiting) wake();
    },
  });
  const seen = async (fits: (event: SupervisorEvent) => boolean) => {
    while (!events.some(fits)) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          waiting.delete(wake);
          resolve();
        };
        waiting.add(wake);
      });
    }
  };
  return { supervisor, events, seen, decisions };
}

const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

test('a killed child is restarted, and stop() ends it', async () => {
  const { supervisor, events, seen, decisions } = supervise();
  await supervisor.start([spec('worker', program('worker'))]);
  const first = supervisor.pids().worker;
  assert.ok(first);
  process.kill(first, 'SIGKILL');
  await seen((event) => event.kind === 'ready' && event.restarted);
  const second = supervisor.pids().worker;
  assert.ok(second && second !== first);
  assert.ok(events.some((event) => event.kind === 'died' && event.why === 'signal SIGKILL'));
  await supervisor.stop([['worker']]);
  assert.equal(alive(second), false);
  const [ready, died, again, ended, ...more] = decisions.records;
  assert.deepEqual(more, []);
  const { livedMs, ...fields } = died?.fields ?? {};
  assert.equal(typeof livedMs, 'number');
  const child = 'worker';
  const exit = { child, pid: first, cause: 'signal SIGKILL', exitCode: null, signal: 'SIGKILL', figures: {} };
  assert.deepEqual(fields, { ...exit, quickDeaths: 1, restartInMs: 50 });
  assert.deepEqual([died?.level, died?.message], ['error', 'a process died, and starts again']);
  assert.deepEqual(
    [ready, again].map((record) => [record?.fields.child, record?.fields.pid, record?.fields.restarts]),
    [
      [child, first, 0],
      [child, second, 1],
    ],
  );
  assert.deepEqual([ended?.message, ended?.fields.exitCode], ['a process ended', 0]);
});

/** True for a process that has not ended. One that has ended stays in the state `Z` until init removes it, which may take long. */
function runs(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
}

test('a program that a killed child has started is killed, too, and the child starts again', async () => {
  const { supervisor, events, seen } = supervise();
  const file = path.join(directory, 'started');
  const script = `sleep 1000 & echo $! >> ${file}; echo '{"ready":true}'; wait`;
  await supervisor.start([spec('starter', '', { command: '/bin/sh', args: ['-c', script] })]);
  process.kill(supervisor.pids().starter ?? assert.fail('no child'), 'SIGKILL');
  await seen((event) => event.kind === 'died');
  await seen(() => events.filter(({ kind }) => kind === 'ready').length === 2);
  const [first, second] = readFileSync(file, 'utf8').trim().split('\n').map(Number);
  assert.ok(first && second && runs(second), `${first}, ${second}`);
  while (runs(first)) await sleep(10);
  await supervisor.stop(NO_STAGES);
  while (runs(second)) await sleep(10);
});

test('a child that fails to start is reported with its last output', async () => {
  const { supervisor } = supervise();
  const file = program('broken', `console.error('no such device'); process.exit(3);`);
  await assert.rejects(
    supervisor.start([spec('broken', file)]),
    /broken ended while starting \(exit code 3\)[\s\S]*no such device/,
  );
  await supervisor.stop(NO_STAGES);
});

test('a child that is not ready in time is killed and reported', async () => {
  const { supervisor } = supervise();
  const file = path.join(directory, 'silent.mjs');
  writeFileSync(file, 'setInterval(() => undefined, 1000)');
  await assert.rejects(
    supervisor.start([spec('silent', file, { readyTimeoutMs: 300 })]),
    /silent was not ready after 0\.3 s/,
  );
  await supervisor.stop(NO_STAGES);
});

test('a child that ignores SIGTERM is killed', async () => {
  const { supervisor, decisions } = supervise();
  const file = path.join(directory, 'deaf.mjs');
  writeFileSync(
    file,
    `process.on('SIGTERM', () => undefined); setInterval(() => undefined, 1000); console.log('{"ready":true}')`,
  );
  await supervisor.start([spec('deaf', file, { stopTimeoutMs: 200 })]);
  const pid = supervisor.pids().deaf;
  assert.ok(pid);
  await supervisor.stop([['deaf']]);
  assert.equal(alive(pid), false);
  const { cause, figures } = decisions.records.at(-1)?.fields ?? {};
  assert.deepEqual([cause, figures], ['it did not stop within 0.2 s, so it was killed', { stopTimeoutMs: 200 }]);
});

test('children end with a supervisor that was killed', async () => {
  const main = path.join(directory, 'main.ts');
  writeFileSync(
    main,
    `import { openLog } from '${pathOf('../log.ts')}';
     import { Supervisor } from '${pathOf('supervisor.ts')}';
     const log = openLog('supervisor');
     const supervisor = new Supervisor({ logsDirectory: ${JSON.stringify(path.join(directory, 'logs'))}, log, report: () => undefined });
     await supervisor.start([${JSON.stringify(spec('orphan', program('orphan')))}]);
     console.log(supervisor.pids().orphan);`,
  );
  const parent = spawn(process.execPath, [main], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(readline.createInterface({ input: parent.stdout }), 'line')) as [string];
  const pid = Number(line);
  assert.ok(alive(pid));
  parent.kill('SIGKILL');
  const deadline = Date.now() + 120_000;
  while (alive(pid) && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(alive(pid), false);
});

/** Reason of the first death. */
const whyOf = (events: readonly SupervisorEvent[]): string =>
  events.find((event) => event.kind === 'died')?.why ?? 'none died';

/** The shortest limits that exceed the pauses of a busy machine. */
const WATCH = { everyMs: 100, computingMs: 1000, stillMs: 1000 };

test('a watched child that is suspended is killed and replaced; another one that beats keeps running', async () => {
  const { supervisor, events, seen } = supervise();
  const file = program('stopped');
  await supervisor.start([spec('stopped', file, { watch: WATCH }), spec('beating', file, { watch: WATCH })]);
  const { stopped: first, beating } = supervisor.pids();
  assert.ok(first);
  process.kill(first, 'SIGSTOP');
  await seen((event) => event.kind === 'ready' && event.restarted);
  assert.equal(alive(first), false);
  assert.notEqual(supervisor.pids().stopped, first);
  assert.equal(supervisor.pids().beating, beating);
  assert.equal(events.filter(({ kind }) => kind === 'died').length, 1);
  assert.match(whyOf(events), /^its event loop stood still for \d\.\d s, so it was killed$/);
  await supervisor.stop([['stopped', 'beating']]);
});

test('a watched child in an endless loop is killed and replaced', async () => {
  const { supervisor, events, seen } = supervise();
  const file = program('spinning', `process.on('SIGUSR2', () => { for (;;); });`);
  await supervisor.start([spec('spinning', file, { watch: { ...WATCH, stillMs: 60_000 } })]);
  const first = supervisor.pids().spinning;
  assert.ok(first);
  process.kill(first, 'SIGUSR2');
  await seen((event) => event.kind === 'ready' && event.restarted);
  assert.equal(alive(first), false);
  assert.match(whyOf(events), /did not turn for \d\.\d s of processor time, so it was killed$/);
  await supervisor.stop([['spinning']]);
});

test('a child that drains is looked at until it has ended, and is not killed for a silence', async () => {
  const { supervisor } = supervise();
  const asked = path.join(directory, 'asked');
  const file = program(
    'draining',
    `import fs from 'node:fs';
     process.removeAllListeners('SIGTERM').on('SIGTERM', () => fs.writeFileSync('${asked}', ''));
     process.on('SIGUSR2', () => process.exit(0));`,
  );
  const options = { watch: WATCH, stopTimeoutMs: 240_000 };
  await supervisor.start([spec('draining', file, options), spec('last', program('last'))]);
  const { draining: pid = 0, last = 0 } = supervisor.pids();
  const order: string[] = [];
  const stopped = supervisor.stop([['draining']], async () => {
    order.push(`${alive(pid)} ${alive(last)}`);
  });
  while (!existsSync(asked)) await sleep(10);
  const looks = () => supervisor.looks().running.find(({ name }) => name === 'draining');
  assert.equal(looks()?.state, 'scheduled');
  process.kill(pid, 'SIGSTOP');
  while ((looks()?.silentMs ?? assert.fail('no look')) < 2 * WATCH.stillMs) await sleep(10);
  assert.equal(looks()?.state, 'stopped');
  process.kill(pid, 'SIGCONT');
  while (looks()?.state !== 'scheduled') await sleep(10);
  process.kill(pid, 'SIGUSR2');
  await stopped;
  assert.deepEqual(order, ['false true'], 'the last children run until the others have ended');
  const { running, ended } = supervisor.looks();
  assert.deepEqual(running, []);
  assert.deepEqual(
    ended.map(({ name, why }) => [name, why]),
    [
      ['draining', 'exit code 0'],
      ['last', 'exit code 0'],
    ],
  );
});

test('output of a child does not count as a beat', async () => {
  const { supervisor, events, seen } = supervise();
  const print = `try { fs.writeSync(1, '.\\n'); } catch { /* A full pipe refuses a write; the child goes on. */ }`;
  const file = program('printing', `import fs from 'node:fs'; process.on('SIGUSR2', () => { for (;;) ${print} });`);
  await supervisor.start([spec('printing', file, { watch: { ...WATCH, stillMs: 60_000 } })]);
  process.kill(supervisor.pids().printing ?? 0, 'SIGUSR2');
  await seen((event) => event.kind === 'died');
  assert.match(whyOf(events), /did not turn for \d\.\d s of processor time, so it was killed$/);
  await supervisor.stop([['printing']]);
});

/**
 * A supervisor in a process of its own, with two watched children. The process prints the supervisor's events, which
 * have the children's process ids. It also prints `looked` as often as the supervisor looks at the children.
 */
async function ownSupervisor(name: string) {
  const main = path.join(directory, `${name}.ts`);
  const file = program(`${name}-child`);
  const specs = ['one', 'two'].map((child) => spec(`${name}-${child}`, file, { watch: WATCH }));
  writeFileSync(
    main,
    `import { openLog } from '${pathOf('../log.ts')}';
     import { Supervisor } from '${pathOf('supervisor.ts')}';
     const log = openLog('supervisor');
     const report = (event) => console.log(JSON.stringify(event));
     const supervisor = new Supervisor({ logsDirectory: ${JSON.stringify(path.join(directory, 'logs'))}, log, report });
     await supervisor.start(${JSON.stringify(specs)});
     setInterval(() => console.log(JSON.stringify({ kind: 'looked' })), ${WATCH.everyMs});
     process.on('SIGTERM', async () => { await supervisor.stop([]); process.exit(0); });`,
  );
  const parent = spawn(process.execPath, [main], { stdio: ['ignore', 'pipe', 'inherit'] });
  const events: { kind: string; pid?: number }[] = [];
  const lines = readline.createInterface({ input: parent.stdout });
  const seen = async (kind: string, count: number) => {
    const matching = () => events.filter((event) => event.kind === kind).length;
    const target = matching() + count;
    while (matching() < target) await once(lines, 'line', { signal: AbortSignal.timeout(240_000) });
  };
  lines.on('line', (line) => events.push(JSON.parse(line)));
  await seen('ready', 2);
  const children = events.flatMap(({ kind, pid }) => (kind === 'ready' && pid !== undefined ? [pid] : []));
  return { parent, children, events, seen };
}

test('a pause of the supervisor, alone or with its children, kills no child', async () => {
  const { parent, children, events, seen } = await ownSupervisor('paused');
  try {
    for (const paused of [[parent.pid ?? 0, ...children], [parent.pid ?? 0]]) {
      for (const pid of paused) process.kill(pid, 'SIGSTOP');
      // The pause itself: while all processes are stopped, no event can signal that it was long enough.
      await new Promise((resolve) => setTimeout(resolve, 3 * WATCH.stillMs));
      // The supervisor resumes first. In the first round, it then looks at children that are still stopped.
      process.kill(parent.pid ?? 0, 'SIGCONT');
      await seen('looked', 2);
      for (const pid of paused) process.kill(pid, 'SIGCONT');
      // Twice the limit: a child that did not beat after its pause would be killed here.
      await seen('looked', 2 + (2 * WATCH.stillMs) / WATCH.everyMs);
    }
    assert.deepEqual(
      events.filter(({ kind }) => kind === 'died'),
      [],
    );
    assert.ok(children.every(alive));
  } finally {
    parent.kill('SIGTERM');
    await once(parent, 'exit');
  }
});

test('records of a log keep their time, and JSON records are JSON in the file; other lines get the time', async () => {
  const { supervisor } = supervise();
  const talk = `
     openLog('recorder').warn({ error: new Error('a fault') }, 'in text');
     openLog('recorder', { level: 'info', format: 'json' }).warn({}, 'in JSON');
     console.error('no record');`;
  await supervisor.start([spec('recorder', program('recorder', talk))]);
  await supervisor.stop(NO_STAGES);
  const lines = readFileSync(path.join(directory, 'logs', 'recorder.log'), 'utf8').split('\n');
  const lineWith = (text: string) => lines.find((line) => line.includes(text)) ?? assert.fail(`no line with ${text}`);
  assert.match(lineWith('in text'), /^[\dT:.-]+Z warn recorder: in text$/);
  assert.equal(lineWith('a fault'), '    Error: a fault');
  assert.equal(JSON.parse(lineWith('in JSON')).message, 'in JSON');
  assert.match(lineWith('no record'), /^[\dT:.-]+Z no record$/);
});

test('a full disk costs lines of a log, but neither the child nor the supervisor', async () => {
  const { supervisor } = supervise();
  const logs = path.join(directory, 'logs');
  const file = path.join(logs, 'talker.log');
  symlinkSync('/dev/full', file);
  const talk = `let said = 0;
     setInterval(() => console.log('line ' + said++), 10);`;
  try {
    await supervisor.start([spec('talker', program('talker', talk))]);
    const { talker } = supervisor.pids();
    rmSync(file);
    // The log opens the file again after some seconds.
    const isBack = () => /lines are missing here: ENOSPC.*\n.*line \d+\n/.test(readFileSync(file, 'utf8'));
    while (!existsSync(file) || !isBack()) await sleep(50);
    const [, missing, next] =
      /\((\d+) lines are missing here: ENOSPC.*\n.*line (\d+)\n/.exec(readFileSync(file, 'utf8')) ?? [];
    assert.equal(Number(missing), Number(next) + 1, 'the ready line, and all lines before the next one');
    assert.equal(supervisor.pids().talker, talker, 'the child went on');
  } finally {
    await supervisor.stop(NO_STAGES);
  }
});

test('a child that cannot be started is tried again', async () => {
  const { supervisor, events, seen } = supervise();
  await supervisor.start([spec('unlucky', program('unlucky'), { watch: { ...WATCH, stillMs: 60_000 } })]);
  const before = process.env.TMPDIR;
  try {
    // The socket on which a watched child beats needs a directory.
    process.env.TMPDIR = path.join(directory, 'missing');
    process.kill(supervisor.pids().unlucky!, 'SIGKILL');
    await seen((event) => event.kind === 'died' && /could not be started: ENOENT/.test(event.why));
    assert.equal(events.filter(({ kind }) => kind === 'ready').length, 1);
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
  await seen((event) => event.kind === 'ready' && event.restarted);
  await supervisor.stop(NO_STAGES);
});

test('a child that the system refuses to start leaves no descriptors', async () => {
  // No system takes an argument of this length.
  const refused = spec('refused', 'none', { args: ['x'.repeat(2 ** 22)], watch: WATCH });
  const refuse = () => assert.rejects(Child.spawn(refused, { write: () => undefined }), { code: 'E2BIG' });
  await refuse();
  const before = readdirSync('/proc/self/fd').length;
  for (let tries = 0; tries < 8; tries++) await refuse();
  assert.ok(readdirSync('/proc/self/fd').length <= before);
});
