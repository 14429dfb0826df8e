import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import {
  BuildError,
  cardCompiler,
  compileAll,
  emulationCompiler,
  findNvcc,
  forgetOld,
  Includes,
  link,
  MissingCompilerError,
} from './build-cache.ts';

const compiler = emulationCompiler();

function scratch(t: { after(clean: () => void): void }): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-build-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes two sources and a header, for this machine's compiler. */
function project(folder: string, objects = path.join(folder, 'objects')) {
  const header = path.join(folder, 'answer.h');
  const headers = path.join(folder, 'headers');
  mkdirSync(headers, { recursive: true });
  const sources = ['main.cc', 'answer.cc'].map((name) => path.join(folder, name));
  writeFileSync(header, '#pragma once\nint answer();\n');
  writeFileSync(`${sources[0]}`, '#include "answer.h"\nint main() { return answer(); }\n');
  writeFileSync(`${sources[1]}`, '#include "answer.h"\nint answer() { return 42; }\n');
  const compiled: string[] = [];
  const compile = (options: { strict?: boolean } = {}) =>
    compileAll(sources, {
      folder: objects,
      compiler,
      includes: new Includes(),
      includeFolders: [headers],
      root: folder,
      keywordHeaders: [],
      jobs: 2,
      extra: [],
      strict: options.strict ?? false,
      onCompiled: (source) => compiled.push(path.basename(source)),
    });
  return { header, sources, compiled, compile };
}

test('build: compiles only what changed', async (t) => {
  const folder = scratch(t);
  const { header, sources, compiled, compile } = project(folder);
  const objects = await compile();
  assert.deepEqual(compiled.splice(0).sort(), ['answer.cc', 'main.cc']);
  const program = path.join(folder, 'program');
  await link(objects, program, compiler.link, compiler);
  assert.ok(existsSync(program));
  assert.deepEqual(await compile(), objects);
  assert.deepEqual(compiled, []);
  writeFileSync(`${sources[1]}`, '#include "answer.h"\nint answer() { return 43; }\n');
  await compile();
  assert.deepEqual(compiled.splice(0), ['answer.cc']);
  writeFileSync(header, '#pragma once\n// Known to all.\nint answer();\n');
  await compile();
  assert.deepEqual(compiled.splice(0).sort(), ['answer.cc', 'main.cc']);
});

test('build: clones share objects, because an object does not contain the path of its clone', async (t) => {
  const objects = path.join(scratch(t), 'objects');
  const [one, two] = [scratch(t), scratch(t)].map((folder) => ({ folder, ...project(folder, objects) }));
  writeFileSync(
    `${one!.sources[1]}`,
    '#include "answer.h"\nconst char *file = __FILE__;\nint answer() { return 42; }\n',
  );
  writeFileSync(`${two!.sources[1]}`, readFileSync(`${one!.sources[1]}`));
  const compiled = await one!.compile();
  assert.ok(compiled.every((object) => !readFileSync(object).includes(one!.folder)));
  assert.deepEqual(await two!.compile(), compiled);
  assert.deepEqual(two!.compiled, []);
  writeFileSync(path.join(two!.folder, 'headers', 'new.h'), '#pragma once\n');
  await two!.compile();
  assert.equal(two!.compiled.length, 2, 'different headers give different objects');
});

test('build: a header that many sources share is compiled once for them', async (t) => {
  if (!compiler.precompiles) return t.skip(`${compiler.program} does not compile headers as GCC does`);
  const folder = scratch(t);
  const [header, common] = ['first.h', 'common.h'].map((name) => path.join(folder, name)) as [string, string];
  writeFileSync(common, '#pragma once\nint common();\n');
  writeFileSync(header, '#pragma once\n#include <vector>\n#include "common.h"\n');
  const sharingSources = Array.from({ length: 12 }, (_, i) => path.join(folder, `${i}.cc`));
  for (const file of sharingSources) writeFileSync(file, '#include "common.h"\nint answer() { return common(); }\n');
  const unrelatedSource = path.join(folder, 'apart.cc');
  writeFileSync(unrelatedSource, 'int answer() { return 42; }\n');
  const objects = path.join(folder, 'objects');
  const outputBySource = new Map<string, string>();
  const compile = () =>
    compileAll([...sharingSources, unrelatedSource], {
      folder: objects,
      compiler,
      includes: new Includes(),
      includeFolders: [],
      root: folder,
      keywordHeaders: [],
      shared: { header, with: common },
      jobs: 2,
      strict: false,
      // -H prints the headers that a compilation reads, with an exclamation mark before precompiled ones.
      extra: ['-H'],
      onCompiled: (source, _done, _of, output) => outputBySource.set(path.basename(source), output),
    });
  await compile();
  const compiled = [...outputBySource].filter(([, output]) => /^! .*\.gch$/m.test(output)).map(([name]) => name);
  assert.deepEqual(compiled.sort(), sharingSources.map((file) => path.basename(file)).sort());
  assert.equal(outputBySource.size, sharingSources.length + 1);
  assert.deepEqual(
    readdirSync(objects).filter((name) => !name.endsWith('.o')),
    [],
  );
  outputBySource.clear();
  writeFileSync(header, '#pragma once\n#include <string>\n#include "common.h"\n');
  await compile();
  assert.deepEqual([...outputBySource.keys()].sort(), compiled);
});

test('build: only tests without kernels of their own are compiled with the arguments for tests', async (t) => {
  const folder = scratch(t);
  const files = {
    'plain.test.cc': '#ifndef PLAIN\n#error\n#endif\n',
    'kernel.test.cc': '#ifdef PLAIN\n#error\n#endif\n#define __global__\n__global__ void kernel() {}\n',
    'product.cc': '#ifdef PLAIN\n#error\n#endif\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
  const sources = Object.keys(files).map((name) => path.join(folder, name));
  const objects = await compileAll(sources, {
    folder: path.join(folder, 'objects'),
    includes: new Includes(),
    includeFolders: [],
    root: folder,
    keywordHeaders: [],
    jobs: 2,
    extra: [],
    strict: false,
    onCompiled: () => undefined,
    compiler: { ...compiler, compileTest: [...compiler.compileHost, '-DPLAIN'] },
  });
  assert.equal(objects.length, sources.length);
});

test('build: concurrent builds compile each source once', async (t) => {
  const { compiled, compile } = project(scratch(t));
  await Promise.all([compile(), compile(), compile()]);
  assert.deepEqual(compiled.sort(), ['answer.cc', 'main.cc']);
});

test('build: the lock of a killed process does not block a build', async (t) => {
  const folder = scratch(t);
  const { compiled, compile } = project(folder);
  mkdirSync(path.join(folder, 'objects'));
  // The process id is above Linux's largest one.
  const holder = { pid: 4194305, host: os.hostname(), token: 'gone' };
  writeFileSync(path.join(folder, 'objects', `${path.basename(compiler.program)}.lock`), JSON.stringify(holder));
  await compile();
  assert.equal(compiled.length, 2);
});

test('build: a compilation error has the compiler’s text, and leaves no object', async (t) => {
  const folder = scratch(t);
  const { sources, compile } = project(folder);
  writeFileSync(`${sources[1]}`, '#include "answer.h"\nint answer() { return nothing; }\n');
  await assert.rejects(compile(), (error: Error) => error instanceof BuildError && /nothing/.test(error.message));
  await assert.rejects(compile(), BuildError);
  writeFileSync(`${sources[1]}`, '#include "answer.h"\nint answer() { int unused; return 42; }\n');
  await assert.rejects(compile({ strict: true }), /unused/);
  await compile();
});

test('build: objects that no build has used for long are removed', async (t) => {
  const folder = scratch(t);
  const { compile } = project(folder);
  const objects = await compile();
  forgetOld(path.join(folder, 'objects'), 1);
  assert.ok(objects.every((object) => existsSync(object)));
  forgetOld(path.join(folder, 'objects'), -1);
  assert.ok(!objects.some((object) => existsSync(object)));
});

test('build: nvcc is found on PATH and under CUDA_HOME', (t) => {
  const folder = scratch(t);
  mkdirSync(path.join(folder, 'bin'));
  const file = path.join(folder, 'bin', 'nvcc');
  writeFileSync(file, '#!/bin/sh\nexit 1\n');
  chmodSync(file, 0o755);
  assert.equal(findNvcc({ PATH: path.join(folder, 'bin') }), file);
  assert.equal(findNvcc({ PATH: '', CUDA_HOME: folder }), file);
});

test('build: options without an effect are refused', () => {
  const program = path.join(import.meta.dirname, 'build.ts');
  for (const [args, why] of [
    [['--sanitize'], '--sanitize needs --emulate'],
    [['--registers', '--emulate'], '--registers needs nvcc'],
    [['--tests', '--harness'], '--tests or --harness, not both'],
    [['--jobs', 'many'], '--jobs many is not a number'],
  ] as const) {
    const { status, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' });
    assert.equal(status, 2, stderr);
    assert.ok(stderr.startsWith('error: ') && stderr.includes(why) && stderr.includes('Usage: '), stderr);
  }
});

test('build: an invalid architecture is refused', () => {
  for (const name of ['hopper', 'toString', 'sm_70'])
    assert.throws(
      () => cardCompiler(name),
      (error) => error instanceof MissingCompilerError && /not an architecture/.test(error.message),
    );
});
