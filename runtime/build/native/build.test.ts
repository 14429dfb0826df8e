import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { compileWorld, type HostTable } from '../../lowering/compile.ts';
import { instantiate } from '../../lowering/instance.ts';
import { SliceRunner } from '../../lowering/slices.ts';
import { testArtifact, testProgram } from '../../testing/components.ts';
import { recordingHost } from '../../testing/recording-host.ts';
import { buildArtifact } from '../artifact/build.ts';
import { buildComponent } from '../component/build.ts';
import { runComponentStage } from '../component/stage.ts';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { load } from '../testing/load.ts';
import { compileC } from './clang.ts';
import { runCompiler } from './compiler.ts';
import { prebuiltModule } from './prebuilt.ts';
import { wrapModule } from './wrap.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../../../functions/native-completion', import.meta.url));
const HEAD = '#include "pie.h"\n';
const RUN = 'pie_result_string_string pie_run(pie_string input)';

let root = '';
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-native-'));
});
after(() => rm(root, { recursive: true, force: true }));

async function project(name: string, text: string, more: Readonly<Record<string, string>> = {}): Promise<string> {
  const directory = join(root, name);
  const files = { 'pie.json': `{"name": "${name}", "main": "main.c"}`, 'main.c': text, ...more };
  for (const [file, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), content);
  }
  return directory;
}

/** Compiles in this process; a new process would first have to load the tools. @throws BuildError */
async function compileInProcess(directory: string): Promise<Uint8Array> {
  const { path } = await runComponentStage(directory, join(root, 'out.wasm'), undefined);
  return readFile(path);
}

async function refusalOf(directory: string): Promise<BuildFailure> {
  const outcome = await compileInProcess(directory).catch(failureFrom);
  assert.ok('ok' in outcome, 'the build should have failed');
  return outcome;
}

const run = async (component: Uint8Array, input: string): Promise<string> =>
  (await load(await testArtifact(component, 256))).run(input);

describe('a folder whose main is a C file', () => {
  it('builds, with its included files, into a component of a few kilobytes', async () => {
    const directory = await project(
      'hello',
      `${HEAD}#include "greeting.h"\n${RUN} { (void)input; return (pie_result_string_string){.ok = GREETING}; }`,
      { 'greeting.h': '#define GREETING PIE_TEXT("\\"hello\\"")' },
    );
    const outcome = await buildComponent(directory, { store: join(root, 'store') });
    assert.ok(outcome.ok, outcome.ok ? '' : outcome.message);
    assert.deepEqual([...outcome.files].sort(), ['greeting.h', 'main.c']);
    assert.ok(outcome.component.length < 20_000, `${outcome.component.length} bytes`);
    const made = await buildArtifact(outcome.component, { store: join(root, 'artifacts') });
    assert.ok(made.ok, made.ok ? '' : made.message);
    assert.equal(await (await load(made.artifact)).run('{}'), '"hello"');
  });

  it('may use string.h and malloc beside the arena', async () => {
    const component = await compileInProcess(
      await project(
        'libc',
        `${HEAD}#include <stdlib.h>\n#include <string.h>
        ${RUN} {
          char *copies[100];
          for (int i = 0; i < 100; i++) {
            copies[i] = malloc(input.length + 1000 * i);
            memcpy(copies[i], input.data, input.length);
            memset(pie_alloc(5000, 16), 255, 5000);
          }
          for (int i = 0; i < 100; i++) if (memcmp(copies[i], input.data, input.length)) abort();
          return (pie_result_string_string){.ok = {copies[99], input.length}};
        }`,
      ),
    );
    assert.equal(await run(component, '{"a":1}'), '{"a":1}');
  });

  it('is refused with the place of its errors, or with the forbidden import', async () => {
    const wrong = await refusalOf(await project('wrong', `${HEAD}${RUN} {\n  return input.text;\n}`));
    assert.match(wrong.message, /main\.c:3:16: .*text/);
    assert.equal(wrong.diagnostics?.[0]?.source, '  return input.text;');
    assert.match((await refusalOf(await project('missing', '#include "nothing.h"\n'))).hint, /wasi-libc/);
    assert.match((await refusalOf(await project('empty', HEAD))).hint, /pie_run\(pie_string input\)/);
    const puts = `${HEAD}#include <stdio.h>\n${RUN} { puts(input.data); return (pie_result_string_string){0}; }`;
    const stdio = await refusalOf(await project('stdio', puts));
    assert.match(stdio.message, /fd_write.* of WASI/);
    assert.match(stdio.hint, /pie_append/);
  });

  it('is refused with the reason when it crashes the compiler, which leaves no copy of the source behind', async () => {
    const temporary = await mkdtemp(join(root, 'tmp-'));
    const previousFolder = process.env.TMPDIR;
    process.env.TMPDIR = temporary;
    try {
      const { message } = await refusalOf(await project('crashes', `${HEAD}#pragma clang __debug crash\n${RUN} {}`));
      assert.match(message, /^The compiler crashed \(exit code \d+\)/);
    } finally {
      if (previousFolder === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = previousFolder;
    }
    assert.deepEqual(await readdir(temporary), []);
  });

  it('traps when a text would grow into released arena memory, but not while it stays within reserved memory', async () => {
    const quote = 'pie_append(&text, PIE_TEXT("\\""));';
    const append = 'pie_append(&text, PIE_TEXT("abcd"));';
    const reserved = `pie_reserve(&text, 200); ${quote}`;
    const result = '(pie_result_string_string){.ok = pie_text(&text)}';
    const inner = `pie_mark_t inner = pie_mark(); ${append} pie_release(inner);`;
    const own = 'pie_buffer own = {0}; for (int k = 0; k < 50; k++) pie_append(&own, PIE_TEXT("xyz"));';
    /** Each case: code before a loop, code that each turn runs between a mark and its release, and the output; null stands for a trap. */
    const cases: readonly (readonly [setup: string, turn: string, output: string | null])[] = [
      [reserved, append, `"${'abcd'.repeat(30)}"`],
      [reserved, inner, `"${'abcd'.repeat(30)}"`],
      [quote, own, '""'],
      [quote, append, null],
      ['', append, null],
      [quote, inner, null],
      // The text's memory was allocated after a mark that is released before the marks of the loop begin.
      [`pie_mark_t gone = pie_mark(); ${reserved} pie_release(gone);`, `${inner} return ${result};`, null],
    ];
    const bodies = cases.map(([setup, turn], i) => {
      const scratch = "for (char *at = pie_alloc(16, 1), *end = at + 16; at < end; at++) *at = '#';";
      const loop = `for (int i = 0; i < 30; i++) { pie_mark_t mark = pie_mark(); ${turn} ${scratch} pie_release(mark); }`;
      return `if (input.data[0] == '${i}') { ${setup} ${loop} }`;
    });
    const text = `${HEAD}${RUN} { pie_buffer text = {0};\n${bodies.join('\n')}\n${quote} return ${result}; }`;
    const component = await compileInProcess(await project('marks', text));
    for (const [i, [, , output]] of cases.entries()) {
      const running = run(component, `${i}`);
      if (output === null) await assert.rejects(running, WebAssembly.RuntimeError, `case ${i}`);
      else assert.equal(await running, output, `case ${i}`);
    }
  });

  it('is refused when the name of its main would be an option of clang, or a file of options', async () => {
    // If clang read this text as an options file, it would build the valid program real.c.
    const options = `-DTAKEN\nreal.c`;
    for (const main of ['@x.c', '-DTAKEN.c', '@sub/x.c']) {
      const directory = await project('options', '', {
        'pie.json': JSON.stringify({ name: 'options', main }),
        'real.c': `${HEAD}${RUN} { (void)input; return (pie_result_string_string){.ok = PIE_TEXT("1")}; }`,
        'x.c': options,
        'sub/x.c': options,
        [main]: options,
      });
      assert.match((await refusalOf(directory)).message, /begins with - or @/, main);
    }
  });
});

/** Runs the bundled inferlet on a host that decodes one token and then the token that ends a text; returns all calls and the ending. */
async function transcript(module: Uint8Array) {
  const program = await testProgram(await testArtifact(await wrapModule(module)));
  const { host, lines } = recordingHost();
  const ok = (val?: unknown) => ({ tag: 'ok', val });
  const answers: HostTable = {
    ...host,
    runtime: {
      ...host.runtime,
      models: () => [{ name: 'm', contextLength: 64, vocabularySize: 99, pageSize: 16, traits: [] }],
    },
    tokenize: {
      ...host.tokenize,
      tokenize: (_context, _model, text) => ok(Uint32Array.of(5, Array.from(text as string).length)),
      'special-tokens': () => ok({ bos: 1, eos: [2] }),
      '[method]detokenizer.push': (_context, _self, tokens) => ok((tokens as Uint32Array)[0] === 7 ? 'é' : ''),
      '[method]detokenizer.finish': () => '!',
    },
    allocate: { ...host.allocate, 'allocate-pages': () => ok(Uint32Array.of(1, 2)) },
    session: { ...host.session, send: () => ok() },
    fused: {
      ...host.fused,
      '[method]run.next': () => Promise.resolve(ok({ tokens: Uint32Array.of(7, 2), finished: 'stop-token' })),
    },
  };
  const options = { slices: new SliceRunner(), cpuLimitMs: 5000 };
  const execution = instantiate(program, compileWorld(answers), options);
  const ending = await execution.start('{"prompt":"Once \\u00e9","maxTokens":5,"seed":3,"temperature":0.5}');
  execution.dispose();
  return { ending, lines };
}

describe('a machine without clang', () => {
  /** Runs the build program with a PATH that has no compiler. */
  const buildWithout = (directory: string) =>
    new Promise<Record<string, unknown>>((resolve) => {
      const args = [MAIN, 'component', directory, join(root, 'out.wasm'), '--json'];
      execFile(process.execPath, args, { env: { PATH: root } }, (_error, stdout) => resolve(JSON.parse(stdout)));
    });

  it('refuses a build and names the package to install', async () => {
    const failure = await buildWithout(await project('bare', `${HEAD}${RUN} {}`));
    assert.equal(failure.message, 'The C compiler, clang, is not on the PATH.');
    assert.match(String(failure.hint), /apt-get install clang lld/);
  });

  it('uses the module beside the source unless the source has changed', async () => {
    const directory = join(root, 'copied');
    await cp(EXAMPLE, directory, { recursive: true });
    assert.equal((await buildWithout(directory)).ok, true);
    await writeFile(join(directory, 'json.h'), '/* changed */');
    assert.equal((await buildWithout(directory)).ok, false);
  });

  it('uses a module of the bundled inferlet that behaves like its compiled source', async () => {
    const entry = join(EXAMPLE, 'main.c');
    const prebuilt = await prebuiltModule(entry);
    assert.ok(prebuilt, 'main.wasm is of another source: see functions/INFERLETS.md, native-completion');
    const { module } = await compileC({ directory: EXAMPLE, entry }, root);
    const [first, second] = await Promise.all([prebuilt, module].map(transcript));
    assert.deepEqual(first, second);
    // Prompt tokens: `bos` and the two tokens of `tokenize`.
    assert.equal(
      first?.ending.kind === 'returned' && first.ending.text,
      '{"text":"é!","tokens":[7],"finishReason":"stop-token","promptTokens":3}',
    );
    // A text also ends at `bos`, which begins the next text, as in text-completion.
    assert.match(first?.lines.join('\n') ?? '', /"stopTokens":"Uint32Array\[2,1\]"/);
    assert.ok((await readFile(join(EXAMPLE, 'main.wasm'))).length < 20_000);
  });
});

describe('runCompiler', () => {
  const run = (script: string) =>
    runCompiler('/bin/sh', ['-c', script], { cwd: root, limitMs: 1000, limitKib: 2 ** 20 });

  it('distinguishes a crash of the compiler from a passed time limit', async () => {
    await assert.rejects(run('kill -SEGV $$'), { code: 'build-failed', message: /crashed \(SIGSEGV\)/ });
    for (const code of [70, 101, 134, 139, 254]) {
      const hint = /crashes outside of Pie/;
      await assert.rejects(run(`exit ${code}`), { message: new RegExp(`crashed \\(exit code ${code}\\)`), hint });
    }
    assert.equal((await run('exit 1'))?.code, 1);
    await assert.rejects(run('while :; do :; done'), {
      code: 'build-timeout',
      message: /took more than 1 s of CPU time/,
    });
  });

  it('returns null when the compiler does not exist', async () => {
    assert.equal(await runCompiler('/no/such/compiler', [], { cwd: root, limitMs: 1000, limitKib: 2 ** 20 }), null);
  });
});
