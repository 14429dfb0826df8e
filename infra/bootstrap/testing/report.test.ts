import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const REPORT = fileURLToPath(new URL('./report.ts', import.meta.url));
const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-report-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const FAILURES = path.join(directory, 'failures');

/** Runs test files with `report.ts` as the only reporter, which keeps failures in `FAILURES`. */
function run(files: Readonly<Record<string, string>>, ...options: string[]) {
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(directory, name), text);
  const { NODE_TEST_CONTEXT: _, PIE_TEST_COSTS: __, ...env } = process.env;
  const reporter = [`--test-reporter=${REPORT}`, '--test-reporter-destination=stdout'];
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['--test', ...options, ...reporter, ...Object.keys(files)],
    { cwd: directory, encoding: 'utf8', env: { ...env, PIE_TEST_FAILURES: FAILURES } },
  );
  for (const name of Object.keys(files)) rmSync(path.join(directory, name));
  return { stdout, stderr, status };
}

const TEST = "import { test } from 'node:test';";

for (const isolation of ['process', 'none']) {
  test(`the report has the cost of each file and counts skip reasons (isolation: ${isolation})`, () => {
    const { stdout, stderr, status } = run(
      {
        'one.test.mjs': `${TEST} test('a', { skip: 'no card' }, () => undefined); test('b', { skip: 'no card' }, () => undefined);`,
        'two.test.mjs': `${TEST} test('c', (t) => t.skip('no time')); test('d', () => undefined);`,
      },
      `--test-isolation=${isolation}`,
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^Test files by processor time and duration:$/m);
    for (const name of ['2 files', 'one\\.test\\.mjs', 'two\\.test\\.mjs'])
      assert.match(stdout, new RegExp(`^( +\\d+\\.\\d s){2}  ${name}$`, 'm'));
    assert.ok(!existsSync(FAILURES));
    assert.match(stdout, /^Skipped tests: 3\n +2 {2}no card\n +1 {2}no time\n$/m);
  });
}

test('files that share a process have their own processor time, with that of ended and living child processes', () => {
  const compute = 'for (let used; (used = process.cpuUsage()).user + used.system < 300_000; );';
  const { stdout, stderr } = run(
    {
      'computes.test.mjs': `import { after, test } from 'node:test'; import { execFileSync, spawn } from 'node:child_process';
        test('computes', async () => {
          await new Promise(setImmediate);
          execFileSync(process.execPath, ['-e', ${JSON.stringify(compute)}]);
          const child = spawn(process.execPath, ['-e', ${JSON.stringify(`${compute} console.log(); setInterval(() => {}, 1000);`)}]);
          await new Promise((resolve) => child.stdout.once('data', resolve));
          after(() => child.kill());
        });`,
      'idles.test.mjs': `${TEST} test('idles', () => undefined);`,
    },
    '--test-isolation=none',
  );
  const secondsOf = (name: string) =>
    Number(new RegExp(`^ +(\\d+\\.\\d) s +\\d+\\.\\d s  ${name}$`, 'm').exec(stdout)?.[1]);
  assert.ok(secondsOf('computes\\.test\\.mjs') >= 0.6, stdout + stderr);
  assert.ok(secondsOf('idles\\.test\\.mjs') < 0.6, stdout + stderr);
});

test('a test skipped without a reason fails the run', () => {
  const { stdout, status } = run({
    'silent.test.mjs': `${TEST} test('says nothing', { skip: true }, () => undefined);`,
  });
  assert.equal(status, 1);
  assert.match(stdout, /skipped without a reason, which is an error: says nothing \(silent\.test\.mjs\)/);
});

test('a failed test fails the run, and is kept once with its error', () => {
  const { status } = run({
    'fails.test.mjs': `${TEST}
      test('all', async (t) => { await t.test('some', () => { throw new Error('no', { cause: 'x'.repeat(9000) }); }); });`,
    'passes.test.mjs': `${TEST} test('passes', () => undefined);`,
  });
  assert.equal(status, 1);
  const kept = readFileSync(FAILURES, 'utf8');
  assert.match(kept, /^\nfails\.test\.mjs:2 {2}some\n {2}Error: no\n[\s\S]*x …\n$/);
  // The report keeps 3000 characters of an error, to which it adds the title and the indents.
  assert.ok(kept.length < 3200, `${kept.length}`);
});
