import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
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

/** The failure of a build in its own process. */
async function failure(path: string): Promise<BuildFailure> {
  const outcome = await buildComponent(path, { store });
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
});
