import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { ConfigError } from './config-error.ts';
import { claimHome } from './home.ts';

const STARTS = 8;
const ROUNDS = 4;

/** Code that defines `claim` for a script: it claims the home that `PIE_HOME` names. */
const PREPARE = `
  const { claimHome } = await import(${JSON.stringify(new URL('./home.ts', import.meta.url).href)});
  const home = process.env.PIE_HOME;
  const claim = () => claimHome({
    home, runDirectory: home + '/run', logsDirectory: home + '/logs', artifactsDirectory: home + '/artifacts',
  });`;

/** A program that claims the home at its first input, and keeps the claim until its input ends. */
const SCRIPT = `${PREPARE}
  const input = process.stdin[Symbol.asyncIterator]();
  console.log('ready');
  await input.next();
  try {
    const release = claim();
    console.log('claimed');
    await input.next();
    release();
  } catch (error) {
    console.log(error.message);
  }
  process.exit();`;

test('one of several simultaneous starts claims the home, even after its last owner was killed', async () => {
  const home = mkdtempSync(join(tmpdir(), 'pie-home-'));
  const pidFile = join(home, 'run', 'supervisor.pid');
  mkdirSync(join(home, 'run'));
  const children: ChildProcess[] = [];
  try {
    for (let round = 0; round < ROUNDS; round++) {
      // As after a kill, the file names a process that does not run: this pid is above the largest possible one.
      if (round % 2 === 1) writeFileSync(pidFile, String(2 ** 22 + 1));
      const starts = Array.from({ length: STARTS }, () => {
        // The argument makes the command line look like that of a supervisor.
        const child = spawn(process.execPath, ['--input-type=module', '-e', SCRIPT, '--', 'infra/up.ts'], {
          env: { ...process.env, PIE_HOME: home },
          stdio: ['pipe', 'pipe', 'inherit'],
        });
        children.push(child);
        // A refused start has ended before the test ends its input.
        child.stdin.on('error', () => undefined);
        const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
        return { child, exited: once(child, 'exit'), line: async () => String((await lines.next()).value) };
      });
      await Promise.all(starts.map(({ line }) => line()));
      for (const { child } of starts) child.stdin.write('go\n');
      const outcomes = await Promise.all(starts.map(({ line }) => line()));
      const owner = starts[outcomes.indexOf('claimed')];
      assert.ok(owner, outcomes.join('; '));
      const refusal = `${home} is in use by a running platform (process ${owner.child.pid}).`;
      assert.equal(outcomes.filter((text) => text.startsWith(refusal)).length, STARTS - 1, outcomes.join('; '));
      assert.equal(readFileSync(pidFile, 'utf8'), String(owner.child.pid));
      for (const { child } of starts) child.stdin.end();
      await Promise.all(starts.map(({ exited }) => exited));
      assert.ok(!existsSync(pidFile), 'the owner releases its claim');
      assert.deepEqual(readdirSync(join(home, 'run')), [`supervisor.pid.claim-${round + 1}`]);
    }
  } finally {
    for (const child of children) child.kill('SIGKILL');
    rmSync(home, { recursive: true, force: true });
  }
});

/**
 * A program that claims the home again and again for 8 s. After each claim it releases the home, or leaves it as a killed owner would. It counts
 * its claims, and the claims that it got while another process still owned the home.
 */
const CLAIMS = `${PREPARE}
  const { readFileSync, readdirSync, rmSync, writeFileSync } = await import('node:fs');
  let [claims, sharedClaims] = [0, 0];
  for (const endMs = Date.now() + 8000; Date.now() < endMs; ) {
    let release;
    try {
      release = claim();
    } catch {
      continue;
    }
    claims++;
    try {
      writeFileSync(home + '/owner', '', { flag: 'wx' });
    } catch {
      sharedClaims++;
    }
    for (const untilMs = Date.now() + Math.random() * 2; Date.now() < untilMs; );
    rmSync(home + '/owner', { force: true });
    if (Math.random() < 0.7) release();
    else
      for (const name of readdirSync(home + '/run')) {
        let owner;
        try {
          owner = readFileSync(home + '/run/' + name, 'utf8');
        } catch {
          continue;
        }
        // As after a kill, the claim names a process that does not run: 4194305 is above the largest pid.
        if (owner === String(process.pid)) writeFileSync(home + '/run/' + name, '4194305');
      }
  }
  console.log(JSON.stringify({ claims, sharedClaims }));`;

const skipLong = process.env.PIE_TEST_ALL ? false : 'set PIE_TEST_ALL';

test('a home never has two owners at once, even if owners die while other processes start', {
  skip: skipLong,
}, async () => {
  const home = mkdtempSync(join(tmpdir(), 'pie-home-'));
  try {
    const args = ['--input-type=module', '-e', CLAIMS, '--', 'infra/up.ts'];
    const options = { env: { ...process.env, PIE_HOME: home } };
    const runs = Array.from({ length: 6 }, () => promisify(execFile)(process.execPath, args, options));
    for (const { stdout } of await Promise.all(runs)) {
      const { claims, sharedClaims } = JSON.parse(stdout) as { claims: number; sharedClaims: number };
      assert.ok(claims > 0);
      assert.equal(sharedClaims, 0);
    }
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});

const noThreads = existsSync('/proc/self/task') ? false : 'this system has no /proc with the ids of threads';

test('a pid file with the id of a thread, even one of the claiming process, does not claim the home', {
  skip: noThreads,
}, async () => {
  const home = mkdtempSync(join(tmpdir(), 'pie-home-'));
  mkdirSync(join(home, 'run'));
  const script = `${PREPARE}
    const { readdirSync, writeFileSync } = await import('node:fs');
    const thread = readdirSync('/proc/self/task').find((id) => Number(id) !== process.pid);
    writeFileSync(home + '/run/supervisor.pid', String(Number(thread)));
    claim()();
    console.log('claimed');`;
  try {
    // The argument makes the command line look like that of a supervisor.
    const args = ['--input-type=module', '-e', script, '--', 'infra/up.ts'];
    const { stdout } = await promisify(execFile)(process.execPath, args, { env: { ...process.env, PIE_HOME: home } });
    assert.equal(stdout.trim(), 'claimed');
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});

test('a run directory outside of the home is refused unless it belongs to this user alone', () => {
  const folder = mkdtempSync(join(tmpdir(), 'pie-home-'));
  const [home, runDirectory] = [join(folder, 'home'), join(folder, 'run')];
  const claim = () =>
    claimHome({ home, runDirectory, logsDirectory: join(home, 'logs'), artifactsDirectory: join(home, 'artifacts') });
  const assertRefused = (why: RegExp) => {
    const before = readdirSync(runDirectory);
    assert.throws(claim, (error) => error instanceof ConfigError && why.test(error.message));
    assert.deepEqual(readdirSync(runDirectory), before);
  };
  try {
    const release = claim();
    release();
    release();
    for (const mode of [0o777, 0o750, 0o701]) {
      chmodSync(runDirectory, mode);
      assertRefused(/other users may enter it\. Remove it, or set PIE_HOME/);
    }
    chmodSync(runDirectory, 0o700);
    claim()();
    if (process.getuid?.() === 0) {
      chownSync(runDirectory, 65_534, 65_534);
      assertRefused(/it is no directory of this user/);
      chownSync(runDirectory, 0, 0);
    }
    renameSync(runDirectory, join(folder, 'other'));
    symlinkSync(join(folder, 'other'), runDirectory);
    assertRefused(/it is no directory of this user/);
    rmSync(folder, { recursive: true });
    release();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
