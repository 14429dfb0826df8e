import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, truncate, watch, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import { noRustc, replaceRustc } from '#test/harness/rust.ts';
import { compileWorld, type HostTable } from '../../lowering/compile.ts';
import { instantiate } from '../../lowering/instance.ts';
import { SliceRunner } from '../../lowering/slices.ts';
import { testArtifact, testProgram } from '../../testing/components.ts';
import { type Recording, recordingHost } from '../../testing/recording-host.ts';
import { buildComponent } from '../component/build.ts';
import { runComponentStage } from '../component/stage.ts';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { prebuiltModule } from './prebuilt.ts';
import { compileRust } from './rustc.ts';
import { wrapModule } from './wrap.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../../../functions/rust-completion', import.meta.url));
const skip = await noRustc();

let root = '';
/** The folder of compiled components, which builds may write. */
let store = '';
let restoreRustc: () => void = () => undefined;
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-rust-'));
  store = join(root, 'store');
  await mkdir(store);
  if (skip === false) restoreRustc = await replaceRustc(root, recordingRustc);
});
after(async () => {
  restoreRustc();
  await rm(root, { recursive: true, force: true });
});

/**
 * A rustc that logs each call in `store/calls`, and reports the version in `store/version` if that file exists. The first call that
 * compiles the crate `pie` keeps the result, whose bytes are always the same; later calls copy the result.
 */
const recordingRustc = (rustc: string): string => `
echo "$*" >> ${store}/calls
if [ "$1" = --version ] && [ -e ${store}/version ]; then exec cat ${store}/version; fi
case "$*" in *--crate-name=pie*)
  for output; do :; done
  [ -e ${store}/crate ] && exec cp ${store}/crate "$output"
  ${rustc} "$@" && cp "$output" "$output.copy" && exec mv "$output.copy" ${store}/crate
  exit 1
esac
exec ${rustc} "$@"
`;

/** Number of times that the crate `pie` was compiled. */
const cratesCompiled = async (): Promise<number> =>
  (await readFile(join(store, 'calls'), 'utf8')).split('\n').filter((call) => call.includes('--crate-name=pie')).length;

async function project(name: string, text: string, more: Readonly<Record<string, string>> = {}): Promise<string> {
  const directory = join(root, name);
  const files = { 'pie.json': `{"name": "${name}", "main": "main.rs"}`, 'main.rs': text, ...more };
  for (const [file, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), content);
  }
  return directory;
}

/** Prepares a component, and returns a function that runs the component once with an input. */
async function load(component: Uint8Array, { host, lines }: Recording = recordingHost()) {
  const program = await testProgram(await testArtifact(component, 256));
  return async (input: string) => {
    const execution = instantiate(program, compileWorld(host), { slices: new SliceRunner(), cpuLimitMs: 5000 });
    try {
      return { ending: await execution.start(input), lines: lines.splice(0) };
    } finally {
      execution.dispose();
    }
  };
}

describe('a folder whose main is a Rust file', { skip }, () => {
  it('builds, with its modules and in the confined process, into a component that reads JSON as JavaScript does', async () => {
    const directory = await project(
      'echo',
      `mod part;
      fn run(input: pie::Json) -> Result<pie::Json, String> {
        match input.get("do").as_str() {
          Some("panic") => panic!("{}", part::SAID),
          Some("fail") => Err(part::SAID.to_string()),
          Some("last") => Ok(input.get("a").clone()),
          Some("fill") => Ok(vec![0u32; 1 << 26].into()),
          _ => Ok(input),
        }
      }
      pie::inferlet!(run);`,
      { 'part.rs': 'pub const SAID: &str = "enough";' },
    );
    const outcome = await buildComponent(directory, { store });
    assert.ok(outcome.ok, outcome.ok ? '' : outcome.message);
    assert.deepEqual([...outcome.files].sort(), ['main.rs', 'part.rs']);
    assert.ok(outcome.component.length < 200_000, `${outcome.component.length} bytes`);
    const run = await load(outcome.component);
    const endingOf = async (input: string) => (await run(input)).ending;
    assert.deepEqual(await endingOf('{"do":"fail"}'), { kind: 'returned', ok: false, text: 'enough' });
    const panicked = await run('{"do":"panic"}');
    assert.equal(panicked.ending.kind, 'trapped');
    assert.match(panicked.lines[0] ?? '', /^runtime log\("error", "panicked at .*main\.rs:4:/);
    assert.equal((await endingOf('{"do":"fill"}')).kind, 'trapped');

    const texts = [
      'null',
      ' [ ] ',
      '{}',
      '[true,false,null,0,-1.5e3,1e-7,12345678901]',
      '{"a":{"b":[1,{"c":"d"}]},"":"\\u0000\\u001f\\"\\\\\\/\\b\\f\\n\\r\\t"}',
      '"é😀\\u00e9\\ud83d\\ude00"',
    ];
    for (const text of texts) {
      const ending = await endingOf(text);
      assert.ok(ending.kind === 'returned' && ending.ok, text);
      assert.deepEqual(JSON.parse(ending.text), JSON.parse(text));
    }
    assert.deepEqual(await endingOf('{"do":"last","a":1,"a":2}'), { kind: 'returned', ok: true, text: '2' });
    // A lone surrogate becomes U+FFFD.
    const lone = await endingOf('"\\ud83d\\u0041"');
    assert.ok(lone.kind === 'returned' && lone.text === '"�A"');
    const wrong = ['', '{', '[1,]', '{"a"}', '{"a":1,}', '"', '"\\x"', '"\\u12"', '1 2', 'nul', '[1 2]', '"\n"'];
    const wrongNumbers = ['-', '+1', '.5', '1.', '01', '-01', '1e', '1e+', '1.e5', '1e5.5', '--1', '1-'];
    for (const text of [...wrong, ...wrongNumbers, '['.repeat(10_000)]) {
      const ending = await endingOf(text);
      assert.ok(ending.kind === 'returned' && !ending.ok, text);
      assert.match(ending.text, /^The text is not JSON at byte \d+\.$/);
    }
  });

  it('is refused with the place of its errors', async () => {
    const refused = async (text: string): Promise<BuildFailure> => {
      const outcome = await runComponentStage(await project('wrong', text), join(root, 'out.wasm'), store).catch(
        failureFrom,
      );
      assert.ok(!outcome.ok, 'the build should have failed');
      return outcome;
    };
    const type = await refused(
      'fn run(input: String) -> Result<String, String> {\n  Ok(input.len())\n}\npie::inferlet!(run);',
    );
    assert.match(type.message, /main\.rs:2:6: mismatched types/);
    assert.equal(type.diagnostics?.[0]?.source, '  Ok(input.len())');
    const argument = await refused('fn run(input: u32) -> Result<u32, String> {\n  Ok(input)\n}\npie::inferlet!(run);');
    assert.match(argument.message, /main\.rs:4:\d+: .*Input/);
    assert.match((await refused('use serde::Serialize;')).hint, /the crate pie; put other code into modules/);
    assert.match((await refused('')).hint, /pie::inferlet!\(run\)/);
  });

  it('reuses the compiled crate of an earlier build, unless it is damaged or another compiler made it', async () => {
    const build = async () =>
      runComponentStage(await project('fails', '!'), join(root, 'out.wasm'), store).catch(failureFrom);
    await build();
    const before = await cratesCompiled();
    await build();
    assert.deepEqual([before, await cratesCompiled()], [1, 1]);
    const [crate = ''] = (await readdir(store)).filter((name) => name.endsWith('.rlib'));
    // A power loss may leave an empty file.
    await truncate(join(store, crate), 0);
    await build();
    assert.equal(await cratesCompiled(), 2);
    await writeFile(join(store, 'version'), 'rustc of another day');
    await build();
    assert.equal(await cratesCompiled(), 3);
  });

  it('leaves no files behind after Ctrl-C', async () => {
    const folder = join(root, 'interrupted');
    await mkdir(folder);
    const source = await project(
      'long',
      'fn run(input: String) -> Result<String, String> { Ok(input) }\npie::inferlet!(run);',
    );
    const child = spawn(process.execPath, [MAIN, 'component', source, join(folder, 'out.wasm')], { stdio: 'ignore' });
    const ended = once(child, 'exit');
    // The first entry in the folder is the working folder of the compiler.
    for await (const _ of watch(folder)) if ((await readdir(folder)).length > 0) break;
    child.kill('SIGINT');
    assert.deepEqual(await ended, [130, null]);
    assert.deepEqual(await readdir(folder), []);
  });

  it('is refused when the name of its main could be an option of rustc, or a file of options', async () => {
    for (const main of ['@x.rs', '--version.rs', '@sub/x.rs']) {
      const directory = await project('options', '', {
        'pie.json': JSON.stringify({ name: 'options', main }),
        'x.rs': '--version',
        'sub/x.rs': '--version',
        [main]: '--version',
      });
      const outcome = await runComponentStage(directory, join(root, 'out.wasm'), undefined).catch(failureFrom);
      assert.ok(!outcome.ok);
      assert.match(outcome.message, /begins with - or @/, main);
    }
  });
});

/** Runs the bundled inferlet on a host that decodes three tokens, the last of which ends the text; returns all calls and the ending. */
async function transcript(module: Uint8Array) {
  const { host, lines } = recordingHost();
  const ok = (val?: unknown) => ({ tag: 'ok', val });
  const piped = { tokens: Uint32Array.of(7, 8, 2), text: 'é', held: 'x', finished: 'stop-token' };
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
      '[method]detokenizer.push': (_context, _self, tokens) =>
        ok({ 7: 'é', 8: 'x' }[(tokens as Uint32Array)[0] ?? 0] ?? ''),
      '[method]detokenizer.finish': () => '!',
    },
    allocate: { ...host.allocate, 'allocate-pages': () => ok(Uint32Array.of(1, 2)) },
    session: { ...host.session, send: () => ok() },
    fused: { ...host.fused, '[method]run.pipe': () => Promise.resolve(ok(piped)) },
  };
  const run = await load(await wrapModule(module), { host: answers, lines });
  return run('{"prompt":"Once \\u00e9","maxTokens":5,"seed":3,"temperature":0.5,"stop":["a",""]}');
}

describe('a core module of another build', () => {
  it('becomes a component, or is refused with the reason when it does not fit the contract', async () => {
    const output = join(root, 'out.wasm');
    const entry = join(EXAMPLE, 'main.wasm');
    await runComponentStage(entry, output, undefined);
    assert.deepEqual(await readFile(output), Buffer.from(await wrapModule(await readFile(entry))));
    const wasi = '(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32))))';
    for (const [wat, reason] of [
      [wasi, /wasi_snapshot_preview1/],
      ['(module (memory (export "memory") 1))', /run/],
    ] as const) {
      const file = join(root, 'foreign.wasm');
      await writeFile(file, await parse(wat));
      const outcome = await runComponentStage(file, output, undefined).catch(failureFrom);
      assert.ok(!outcome.ok);
      assert.equal(outcome.code, 'core-module');
      assert.match(outcome.message, reason);
    }
  });
});

describe('a machine without Rust', () => {
  /** Runs the build program with `path` as its PATH; by default, one without rustc. */
  const buildWithout = (directory: string, path = root) =>
    new Promise<Record<string, unknown>>((resolve) => {
      const args = [MAIN, 'component', directory, join(root, 'out.wasm'), '--json'];
      execFile(process.execPath, args, { env: { PATH: path } }, (_error, stdout) => resolve(JSON.parse(stdout)));
    });

  it('refuses a build and names the packages to install', async () => {
    const directory = await project('bare', 'fn main() {}');
    const failure = await buildWithout(directory);
    assert.equal(failure.message, 'The Rust compiler, rustc, is not on the PATH.');
    assert.match(String(failure.hint), /apt-get install rustc libstd-rust-dev-wasm32 lld/);
    const folder = join(root, 'incomplete');
    await mkdir(folder);
    await writeFile(join(folder, 'rustc'), `#!/bin/sh\necho ${folder}\n`, { mode: 0o755 });
    const incomplete = await buildWithout(directory, `${root}:${folder}`);
    assert.equal(incomplete.message, `${folder}/rustc lacks the standard library for wasm32-unknown-unknown.`);
  });

  it('uses the module beside the source unless the source has changed', async () => {
    const directory = join(root, 'copied');
    await cp(EXAMPLE, directory, { recursive: true });
    assert.equal((await buildWithout(directory)).ok, true);
    await writeFile(join(directory, 'more.rs'), '// changed');
    assert.equal((await buildWithout(directory)).ok, false);
  });

  it('uses a module of the bundled inferlet that behaves like its compiled source', { skip }, async () => {
    const entry = join(EXAMPLE, 'main.rs');
    const prebuilt = await prebuiltModule(entry);
    assert.ok(prebuilt, 'main.wasm is of another source: see functions/INFERLETS.md, rust-completion');
    const { module } = await compileRust({ directory: EXAMPLE, entry }, root, store);
    const [first, second] = await Promise.all([prebuilt, module].map(transcript));
    assert.deepEqual(first, second);
    assert.deepEqual(first?.ending, {
      kind: 'returned',
      ok: true,
      text: '{"text":"éx!","tokens":[7,8],"finishReason":"stop-token","promptTokens":3}',
    });
    assert.ok((await readFile(join(EXAMPLE, 'main.wasm'))).length < 150_000);
  });
});
