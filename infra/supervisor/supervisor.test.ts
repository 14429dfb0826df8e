import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { ChildSpec } from './child.ts';
import { Supervisor, type SupervisorEvent } from './supervisor.ts';

const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-supervisor-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** A small program of the platform's kind: it says that it is ready, holds the lifeline, and ends on SIGTERM. */
function program(name: string, body = ''): string {
  const file = path.join(directory, `${name}.ts`);
  writeFileSync(
    file,
    `import { exitWithParent } from '${here('../lifeline.ts')}';
     import { announceReady } from '${here('../ready.ts')}';
     exitWithParent();
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

function supervise() {
  const events: SupervisorEvent[] = [];
  const waiting = new Set<() => void>();
  const supervisor = new Supervisor({
    logsDirectory: path.join(directory, 'logs'),
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
  return { supervisor, events, seen };
}

const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

test('a child that is killed comes back; stopping leaves none', async () => {
  const { supervisor, events, seen } = supervise();
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
});

test('a child that fails to start is reported with its last lines', async () => {
  const { supervisor } = supervise();
  const file = program('broken', `console.error('no such device'); process.exit(3);`);
  await assert.rejects(
    supervisor.start([spec('broken', file)]),
    /broken ended while starting \(exit code 3\)[\s\S]*no such device/,
  );
  await supervisor.stop([]);
});

test('a child that never gets ready is ended and reported', async () => {
  const { supervisor } = supervise();
  const file = path.join(directory, 'silent.mjs');
  writeFileSync(file, 'setInterval(() => undefined, 1000)');
  await assert.rejects(
    supervisor.start([spec('silent', file, { readyTimeoutMs: 300 })]),
    /silent was not ready after 0\.3 s/,
  );
  await supervisor.stop([]);
});

test('a child that ignores SIGTERM is killed', async () => {
  const { supervisor } = supervise();
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
});

test('children end with a supervisor that was killed', async () => {
  const main = path.join(directory, 'main.ts');
  writeFileSync(
    main,
    `import { Supervisor } from '${here('supervisor.ts')}';
     const supervisor = new Supervisor({ logsDirectory: ${JSON.stringify(path.join(directory, 'logs'))}, report: () => undefined });
     await supervisor.start([${JSON.stringify(spec('orphan', program('orphan')))}]);
     console.log(supervisor.pids().orphan);`,
  );
  const parent = spawn(process.execPath, [main], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(readline.createInterface({ input: parent.stdout }), 'line')) as [string];
  const pid = Number(line);
  assert.ok(alive(pid));
  parent.kill('SIGKILL');
  const deadline = Date.now() + 30_000;
  while (alive(pid) && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(alive(pid), false);
});
