import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { type TestContext, test } from 'node:test';
import { build } from './build-cache.ts';

/** All cases take half a minute. At the limit, the test reports the name of a case that hangs. */
const TIME_LIMIT_MS = 900_000;
/** Programs that run at the same time, each with a part of the cases: most cases use one thread. */
const PARTS = 2;

/** Output of a program; `end` says how the program failed, or null. */
interface Run {
  readonly stdout: string;
  readonly stderr: string;
  readonly end: string | null;
}

test('native: kernels and engine, on the CPU', async (t) => {
  await runAll(t, await build('tests', { emulated: true }));
});

test('native: the emulation refuses a fault that it cannot read', async () => {
  const program = await build('tests', { emulated: true });
  for (const fault of [
    'cudaMalloc',
    'cudaMalloc:',
    ':1',
    'cudaMalloc:one',
    'cudaMalloc:-1',
    'cudaMalloc:1:',
    'cudaMalloc:1:2x',
  ]) {
    const env = { ...process.env, PIE_EMULATED_FAULT: fault };
    const { stdout, stderr, end } = await runProgram(program, ['runtime.test.cc'], env);
    assert.equal(stderr, `emulation: PIE_EMULATED_FAULT is "${fault}", not call:after[:error]\n`);
    assert.deepEqual([stdout, end], ['', 'exit code 2']);
  }
});

/** Cards without chained launches and with less shared memory than sm_90; sm_80 also lacks an instruction for float8. */
for (const arch of ['sm_89', 'sm_80']) {
  const skip = !process.env.PIE_TEST_ALL && 'it takes minutes: npm run test:all';
  test(`native: kernels and engine, on the CPU as on a card of ${arch}`, { skip }, async (t) => {
    await runAll(t, await build('tests', { emulated: true, arch }));
  });
}

async function runAll(t: TestContext, program: string): Promise<void> {
  const runs = await Promise.all(Array.from({ length: PARTS }, (_, part) => runPart(program, part)));
  for (const run of runs) await reportCases(t, run);
}

const runPart = (program: string, part: number): Promise<Run> =>
  runProgram(program, ['--announce', `--part=${part}/${PARTS}`], process.env);

function runProgram(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Run> {
  const options = { env, timeout: TIME_LIMIT_MS, killSignal: 'SIGKILL', maxBuffer: 64 << 20 } as const;
  return new Promise((resolve) => {
    execFile(program, args, options, (error, stdout, stderr) => {
      const end =
        error === null ? null : error.killed ? 'it took too long' : (error.signal ?? `exit code ${error.code}`);
      resolve({ stdout, stderr, end });
    });
  });
}

/** Reports each case that a program ran as a test. */
async function reportCases(t: TestContext, { stdout, stderr, end }: Run): Promise<void> {
  let cases = 0;
  let runningCase: string | undefined;
  let notes: string[] = [];
  for (const line of stdout.split('\n')) {
    const result = /^(ok|not ok) \d+ - (.*?)(?: # SKIP (.*?))?(?: \(\d+ ms\))?$/.exec(line);
    if (line.startsWith('# begins: ')) runningCase = line.slice('# begins: '.length);
    else if (result === null) notes.push(line);
    else {
      const [, verdict, name = '', skip] = result;
      const failures = notes.join('\n');
      await t.test(name, { skip: skip ?? false }, () => assert.equal(verdict, 'ok', failures));
      cases++;
      runningCase = undefined;
      notes = [];
    }
  }
  if (runningCase !== undefined) {
    await t.test(runningCase, () =>
      assert.fail(`the program ended in this case (${end})\n${notes.join('\n')}\n${stderr}`),
    );
  } else if (end !== null && !/^not ok/m.test(stdout)) {
    assert.fail(`the program ended: ${end}\n${stderr}`);
  }
  assert.ok(cases > 0, 'no case ran');
}
