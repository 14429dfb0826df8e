import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readScriptFile, writeScriptFile } from '#scheduler/functions/script-file.ts';
import { findSource } from '../build/component/source.ts';
import { buildScript } from '../build/component/stage.ts';
import { decodeHeap } from '../lowering/heap.ts';
import { testEngine } from '../testing/scripts.ts';
import type { Engine } from './engines.ts';
import { evaluateInChild, placedBy, readHeap, readScriptArtifact } from './scripts.ts';

let root = '';
let store = '';
let engine: Engine;
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-scripts-'));
  store = join(root, 'store');
  ({ engine } = await testEngine());
});
after(() => rm(root, { recursive: true, force: true }));

/** The file of a script that names the engine. */
async function scriptOf(name: string, text: string): Promise<Uint8Array> {
  const path = join(root, `${name}.ts`);
  await writeFile(path, text);
  const { header, payload } = readScriptFile((await buildScript(await findSource(path))).script);
  return writeScriptFile({ header: { ...header, engine: engine.hash }, payload });
}

suite('an evaluation in its own process', () => {
  test('keeps heap and places, which are found again, and made again when a file is damaged', async () => {
    const script = await scriptOf(
      'kept',
      'const big = "x".repeat(10);\nexport const run = async (): Promise<string> => big;\n',
    );
    const outcome = await evaluateInChild(engine, script, { store });
    assert.ok(outcome.ok && !outcome.cached, JSON.stringify(outcome));
    const { meta } = outcome.artifact;
    const heap = decodeHeap(await readHeap(outcome.artifact), engine.hash);
    assert.deepEqual([heap.basePages, heap.pages], [engine.memoryPages, meta.heap.pages]);
    assert.ok(meta.starts.warmStartMs >= 0 && meta.starts.instanceBytes > 0);
    // The name of `run` stands at the second line of the author's file.
    assert.equal(placedBy(outcome.artifact)('at run (<input>:2:40)').includes('kept.ts'), true);
    const again = await evaluateInChild(engine, script, { store });
    assert.ok(again.ok && again.cached);
    assert.deepEqual(await readdir(store), [meta.hash], 'an evaluation leaves temporary files behind');
    await truncate(join(outcome.artifact.directory, 'heap.bin'), 10);
    assert.equal(await readScriptArtifact(store, meta.component.hash), null);
    const renewed = await evaluateInChild(engine, script, { store });
    assert.ok(renewed.ok && !renewed.cached);
    // An evaluation is deterministic: another runtime makes the same heap from the same script.
    assert.equal(renewed.artifact.meta.heap.hash, meta.heap.hash);
  });

  for (const [what, text, message] of [
    [
      'throws',
      'interface A { b: number }\nconst a = (): A => null as never;\nconsole.log(a().b);\nexport const run = () => "";',
      /TypeError.* \(throws\.ts:3:\d+\)$/,
    ],
    ['loops', 'for (;;);\nexport const run = () => "";', /computes for too long/],
    [
      'hoards',
      'const all: object[] = [];\nfor (let i = 0; i < 1e7; i++) all.push({ i });\nexport const run = () => all.length;',
      /too much memory/,
    ],
    [
      'calls',
      'import { now } from "pie:inferlet/runtime@0.1.0";\nnow();\nexport const run = () => "";',
      /calls runtime now while it loads/,
    ],
    ['waits', 'await new Promise(() => {});\nexport const run = () => "";', /awaits a promise at its top level/],
  ] as const) {
    test(`refuses a module that ${what}, with advice, and leaves nothing`, async () => {
      const before = await readdir(store).catch(() => []);
      const outcome = await evaluateInChild(engine, await scriptOf(what, text), { store });
      assert.ok(!outcome.ok && outcome.hint.length > 0);
      assert.equal(outcome.code, 'build-failed');
      assert.match(outcome.message, message);
      assert.deepEqual(await readdir(store), before);
    });
  }

  test('a module that changes the prototypes changes only its own instances', async () => {
    const hostile =
      'Object.prototype.toString = () => "mine";\nArray.prototype.map = null as never;\nexport const run = async () => "1";\n';
    assert.ok((await evaluateInChild(engine, await scriptOf('prototypes', hostile), { store })).ok);
    assert.ok(
      (
        await evaluateInChild(engine, await scriptOf('plain', 'export const run = async () => [1].map(String)[0];\n'), {
          store,
        })
      ).ok,
    );
    assert.deepEqual([1].map(String), ['1']);
  });

  test('ends when the process that started it dies', {
    skip: !existsSync('/proc/self/cmdline') && '/proc is not here',
  }, async () => {
    const script = join(root, 'orphan.script');
    await writeFile(script, await scriptOf('orphan', 'for (;;);\nexport const run = () => "";'));
    const modules = ['scripts.ts', '../testing/scripts.ts'].map((file) =>
      JSON.stringify(fileURLToPath(new URL(file, import.meta.url))),
    );
    const program = `import { readFileSync } from 'node:fs'; import { evaluateInChild } from ${modules[0]}; import { testEngine } from ${modules[1]};
      const { engine } = await testEngine(); await evaluateInChild(engine, readFileSync(${JSON.stringify(script)}), { store: ${JSON.stringify(join(root, 'orphans'))} });`;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'ignore' });
    await waitFor(async () => (await evaluations()).length > 0);
    parent.kill('SIGKILL');
    await waitFor(async () => (await evaluations()).length === 0);
  });
});

/** Processes of the evaluating program that write below the folder of this test. */
async function evaluations(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return lines.filter((line) => line.includes('evaluate-main.ts') && line.includes(join(root, 'orphans')));
}

async function waitFor(condition: () => Promise<boolean>): Promise<void> {
  const until = Date.now() + 240_000;
  while (!(await condition())) {
    assert.ok(Date.now() < until, 'the condition did not hold in time');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
