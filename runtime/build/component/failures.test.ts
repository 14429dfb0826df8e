import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { buildComponent } from './build.ts';
import { runComponentStage } from './stage.ts';

let root = '';
let store = '';
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-component-'));
  store = join(root, 'store');
});
after(() => rm(root, { recursive: true, force: true }));

/** Creates a project of these files and returns its folder. */
async function project(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const directory = join(root, name);
  for (const [file, text] of Object.entries(files)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), text);
  }
  return directory;
}

/** The failure of a build in its own process, as users get it. */
async function failure(path: string, options: { timeoutMs?: number } = {}): Promise<BuildFailure> {
  const outcome = await buildComponent(path, { store, ...options });
  assert.ok(!outcome.ok, 'the build should have failed');
  return outcome;
}

/** The failure of a build in this process; a new process would first have to load the tools. */
async function failureInProcess(path: string): Promise<BuildFailure> {
  const outcome = await runComponentStage(path, join(root, 'out.wasm'), store).catch(failureFrom);
  assert.ok(!outcome.ok, 'the build should have failed');
  return outcome;
}

suite('compile errors', () => {
  test('the import of a Node module fails with its place, its name and a replacement', async () => {
    const path = await project('node', {
      'index.ts':
        "import { readFile } from 'node:fs/promises';\nimport http from 'http';\nexport const run = () => readFile(http);\n",
    });
    const { code, message, diagnostics, hint } = await failureInProcess(path);
    assert.equal(code, 'build-failed');
    assert.match(message, /index\.ts:1:\d+: "node:fs\/promises" is a Node module.*no file system.*and 1 more/s);
    assert.deepEqual(
      diagnostics?.map(({ file, line }) => `${file}:${line}`),
      ['index.ts:1', 'index.ts:2'],
    );
    assert.match(diagnostics?.[1]?.text ?? '', /"http" is a Node module/);
    assert.match(hint, /without Node/);
  });

  test('a syntax error names file, line and column', async () => {
    const path = await project('syntax', {
      'index.ts': "import './other.ts';\nexport const run = () => '';",
      'other.ts': 'const a = 1;\nconst b = ;\n',
    });
    const { message, diagnostics } = await failure(path);
    assert.match(message, /other\.ts:2:11: Unexpected ";"/);
    assert.deepEqual(diagnostics?.[0], {
      file: 'other.ts',
      line: 2,
      column: 11,
      text: 'Unexpected ";"',
      source: 'const b = ;',
    });
  });

  test('the import of a package that is not installed names its place', async () => {
    const path = await project('missing', { 'index.ts': "import x from 'not-there';\nexport const run = () => x;" });
    const { message, hint } = await failureInProcess(path);
    assert.match(message, /index\.ts:1:15: Could not resolve "not-there"/);
    assert.match(hint, /npm/);
  });

  test('a source that does not export run is refused', async () => {
    const { message, hint } = await failureInProcess(await project('norun', { 'index.ts': 'export const walk = 1;' }));
    assert.match(message, /does not export `run`/);
    assert.match(hint, /defineInferlet/);
  });

  test('a missing entry or file and a broken manifest are refused', async () => {
    assert.match((await failureInProcess(await project('empty', { 'a.txt': '' }))).message, /no index\.ts/);
    assert.match((await failureInProcess(join(root, 'nowhere.ts'))).message, /no file or folder/);
    assert.match((await failureInProcess(await project('manifest', { 'pie.json': '{' }))).message, /not JSON/);
    assert.match(
      (await failureInProcess(await project('main', { 'pie.json': '{"main": "x.ts"}' }))).message,
      /x\.ts.*not there/,
    );
  });

  test('the error of a module that throws while it loads names the place', async () => {
    const path = await project('throws', {
      'index.ts':
        "interface A { b: number }\nconst a = (): A => null as never;\nconsole.log(a().b);\nexport const run = () => '';\n",
    });
    const { message, diagnostics } = await failureInProcess(path);
    assert.match(message, /fails while it loads: index\.ts:3:\d+: /);
    assert.equal(diagnostics?.[0]?.source, 'console.log(a().b);');
  });

  test('a module that calls the host while it loads is refused', async () => {
    const path = await project('early', {
      'index.ts': "import { now } from 'pie:inferlet/runtime@0.1.0';\nnow();\nexport const run = () => '';",
    });
    assert.match((await failureInProcess(path)).message, /calls runtime now while it loads/);
  });

  test('a module that never finishes loading fails with build-timeout', async () => {
    const path = await project('forever', { 'index.ts': "for (;;);\nexport const run = () => '';" });
    const { code } = await failure(path, { timeoutMs: 2500 });
    assert.equal(code, 'build-timeout');
    assert.ok((await readdir(store)).every((file) => file.endsWith('.wasm')));
  });
});

test('a build ends when the process that started it dies', {
  skip: !existsSync('/proc/self/cmdline') && '/proc is not here',
}, async () => {
  const path = await project('orphan', { 'index.ts': "for (;;);\nexport const run = () => '';" });
  const index = fileURLToPath(new URL('../index.ts', import.meta.url));
  const script = `import { buildComponent } from ${JSON.stringify(index)}; await buildComponent(${JSON.stringify(path)}, { store: ${JSON.stringify(join(root, 'orphans'))} });`;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'ignore' });
  await waitFor(async () => (await builds(path)).length > 0);
  parent.kill('SIGKILL');
  await waitFor(async () => (await builds(path)).length === 0);
});

/** Processes of the build program with this path in their arguments. */
async function builds(path: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return lines.filter((line) => line.includes('runtime/build/main.ts') && line.includes(path));
}

async function waitFor(condition: () => Promise<boolean>): Promise<void> {
  const until = Date.now() + 240_000;
  while (!(await condition())) {
    assert.ok(Date.now() < until, 'the condition did not hold in time');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
