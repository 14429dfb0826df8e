import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Step } from './steps.js';

const LANES = new URL('lanes.js', import.meta.url);

const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-lanes-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const SOCKET = JSON.stringify(path.join(folder, 'socket'));

/** Runs `first` and `second` as steps beside each other, each with a step after it. Returns what `runLanes` printed and returned. */
async function lanes(first: string, second: string): Promise<{ stdout: string; passed: boolean }> {
  const step = (title: string, program: string) => ({
    title,
    minutes: 1,
    args: ['--input-type=module', '-e', program],
  });
  const follows = (title: string, other: string) => step(title, `console.log(${JSON.stringify(`after the ${other}`)})`);
  const beside = { ...step('Second', second), next: follows('Fourth', 'second') };
  const program = `
    import { runLanes } from ${JSON.stringify(LANES)};
    const step = ${JSON.stringify({ ...step('First', first), next: follows('Third', 'first'), beside: [beside] })};
    console.log('passed', await runLanes('.', process.execPath, step));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
    timeout: 240_000,
  });
  return { stdout, passed: stdout.endsWith('passed true\n') };
}

/** Runs one step. Returns what `runLanes` printed and returned, and the errors that it printed. */
function oneStep(step: Step): Promise<{ stdout: string; stderr: string }> {
  const program = `
    import { runLanes } from ${JSON.stringify(LANES)};
    console.log('passed', await runLanes('.', process.execPath, ${JSON.stringify(step)}));`;
  return promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { timeout: 240_000 });
}

/** A program that listens on a socket until another program connects, and then does `more`. */
const LISTENS = (more: string) => `
  import net from 'node:net';
  const server = net.createServer((socket) => { socket.end(); server.close(); console.log('first met second'); ${more} });
  server.listen(${SOCKET});`;
/** A program that tries to connect to that socket until the other program listens, and then does `more`. */
const CONNECTS = (more: string) => `
  import net from 'node:net';
  import { setTimeout as sleep } from 'node:timers/promises';
  for (let met = false; !met; await sleep(5))
    met = await new Promise((resolve) =>
      net.connect(${SOCKET}, () => resolve(true)).on('error', () => resolve(false)));
  console.log('second met first'); ${more}`;

test('steps beside each other run at the same time, and their outputs do not mix', async () => {
  const { stdout, passed } = await lanes(LISTENS(''), CONNECTS(''));
  assert.ok(passed);
  assert.match(
    stdout,
    /^\n== First\nfirst met second\nFirst: \d+ s, \d+ s of processor time\n\n== Third\nafter the first\nThird: \d+ s, \d+ s of processor time\n\n== Second\nsecond met first\nSecond: \d+ s, \d+ s of processor time\n\n== Fourth\nafter the second\nFourth: \d+ s, \d+ s of processor time\npassed true\n$/,
  );
});

test('a step that fails ends its lane and fails the whole, while the other lane goes on', async () => {
  for (const [first, second, finished, ended] of [
    ['process.exitCode = 1;', '', 'second', 'first'],
    ['', 'process.exitCode = 1;', 'first', 'second'],
  ] as const) {
    const { stdout, passed } = await lanes(LISTENS(first), CONNECTS(second));
    assert.ok(!passed);
    assert.match(stdout, /first met second[\s\S]*second met first/);
    assert.ok(stdout.includes(`after the ${finished}`) && !stdout.includes(`after the ${ended}`), stdout);
  }
});

test('a step gets its files as the last arguments', async () => {
  const args = ['-e', 'console.log(process.argv.slice(1).join())'];
  const { stdout } = await oneStep({ title: 'Files', minutes: 1, args, files: ['one.test.ts', '*.test.ts'] });
  assert.match(stdout, /== Files\none\.test\.ts,\*\.test\.ts\n[\s\S]*passed true\n$/);
});

test('a step that does not end in time is killed, and does not pass', async () => {
  const args = ['-e', 'setInterval(() => undefined, 1000)'];
  const { stdout, stderr } = await oneStep({ title: 'Hangs', minutes: 0.02, args });
  assert.match(stderr, /Hangs: did not end within 0\.02 minutes, and was killed/);
  assert.match(stdout, /passed false\n$/);
});

test('npm test exits with 0 when all tests pass; otherwise it prints the failed tests at the end and exits with 1', async () => {
  const { NODE_TEST_CONTEXT: _, PIE_TEST_COSTS: __, ...env } = process.env;
  const npmTest = async (name: string, body: string): Promise<{ code?: number; stderr: string }> => {
    const file = path.join(folder, `${name}.test.mjs`);
    writeFileSync(file, `import { test } from 'node:test'; test('one', () => { ${body} });`);
    const command = fileURLToPath(new URL('test.js', import.meta.url));
    const running = promisify(execFile)(process.execPath, [command, file], { env, timeout: 240_000 });
    return running.catch((error: { code: number; stderr: string }) => error);
  };
  const passed = await npmTest('passes', '');
  assert.ok(passed.code === undefined && !passed.stderr.includes('Failed tests'), passed.stderr);
  const failed = await npmTest('fails', "throw new Error('as the test wants')");
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /\n== Failed tests\n\n\S*fails\.test\.mjs:1 {2}one\n {2}Error: as the test wants\n/);
});
