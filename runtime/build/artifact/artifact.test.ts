import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { testArtifact } from '../../testing/components.ts';
import { contractText } from '../component/contract.ts';
import type { BuildCode } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import { publishArtifact, readArtifact } from '../store.ts';
import { load } from '../testing/load.ts';
import { component, guest, wat } from '../testing/wat.ts';
import { MAX_TABLE_ELEMENTS } from '../wasm/limits.ts';
import { MAX_COMPONENT_BYTES } from './artifact.ts';
import { buildArtifact } from './build.ts';
import { makeArtifact, prepareCoreModules } from './make.ts';
import { runArtifactStage } from './stage.ts';

let store = '';
before(async () => {
  store = await mkdtemp(join(tmpdir(), 'pie-artifact-'));
});
after(() => rm(store, { recursive: true, force: true }));

suite('the artifact of a component', () => {
  test('a build gives an artifact that runs and has a description; later builds reuse it', async () => {
    const bytes = await component(await guest('(local.set $result (i32.mul (local.get $length) (i32.const 7)))'));
    const [first, same] = await Promise.all([buildArtifact(bytes, { store }), buildArtifact(bytes, { store })]);
    assert.ok(first.ok && same.ok);
    assert.equal(same.artifact.hash, first.artifact.hash);
    const again = await buildArtifact(bytes, { store });
    assert.ok(again.ok && again.cached && !first.cached);
    // The guest multiplies the length of its input, 6, by 7.
    assert.equal(await (await load(first.artifact)).run('six ch'), '42');

    const { meta, directory } = first.artifact;
    const files = await readdir(directory);
    assert.deepEqual(files.sort(), ['app.js', 'artifact.json', 'package.json', ...first.artifact.coreModules].sort());
    assert.deepEqual(
      meta.coreModules.filter(({ role }) => role === 'program').map(({ memoryPages }) => memoryPages),
      [[1]],
    );
    assert.deepEqual(meta.glue.rewrites, ['debug', 'wake']);
    assert.ok(meta.toolchain['jco-transpile'] && meta.toolchain.build);
  });

  test('the glue compiles nothing itself and reads no environment', async () => {
    const artifact = await testArtifact(await component(await guest('')));
    const glue = await readFile(artifact.glue, 'utf8');
    assert.doesNotMatch(glue, /new WebAssembly\.Module\(|WebAssembly\.compile\(/);
    assert.doesNotMatch(glue, /^\s*_debugLog\(/m);
  });

  test('each memory limit gives a separate artifact', async () => {
    const bytes = await component(await guest(''));
    assert.notEqual((await testArtifact(bytes)).hash, (await testArtifact(bytes, 32)).hash);
  });
});

suite('the memory and time of an instance are bounded', () => {
  const GROW =
    '(loop $more (br_if $more (i32.ge_s (memory.grow (i32.const 3)) (i32.const 0)))) (local.set $result (memory.size))';

  test('memory grows up to the limit of the artifact', async () => {
    const outcome = await buildArtifact(await component(await guest(GROW)), { store, memoryPages: 64 });
    assert.ok(outcome.ok);
    const instance = await load(outcome.artifact);
    assert.equal(await instance.run(''), '64');
    assert.equal(instance.memoryBytes(), 64 * 65536);
  });

  test('memory grows up to a smaller maximum of its module', async () => {
    const core = await guest(GROW, '', '(memory (export "memory") 1 10)');
    const instance = await load(await testArtifact(await component(core)));
    assert.equal(await instance.run(''), '10');
  });

  test('all growing memories share the limit', async () => {
    const grow = (index: number) => `(func (drop (memory.grow ${index} (i32.const 1))))`;
    // The memories have 8 of the 38 pages at first. The three that can grow share the other 30: 10 each, up to a memory's own maximum.
    const prepared = prepareCoreModules(
      new Map([
        ['own', await wat(`(module (memory 1) (memory 3 5) ${grow(0)} ${grow(1)})`)],
        ['fixed', await wat('(module (memory (export "fixed") 2))')],
        ['grown by another', await wat('(module (memory (export "shared") (export "again") 2))')],
        ['the other', await wat(`(module (import "env" "shared" (memory 1)) ${grow(0)})`)],
      ]),
      new Map(),
      38,
    );
    assert.deepEqual(
      prepared.map(({ module }) => module.memoryPages),
      [[11, 5], [2], [12], []],
    );
  });

  test('the tables have a maximum number, and a maximum of elements together', async () => {
    const prepare = async (tables: string) =>
      prepareCoreModules(new Map([['one', await wat(`(module ${tables})`)]]), new Map(), 1);
    await assert.rejects(prepare('(table 1 funcref)'.repeat(101)), /it has 101 tables; 100 is the limit/);
    await assert.rejects(prepare('(table 65536 funcref) (table 1 funcref)'), /tables have 65537 elements; 65536 is/);
  });

  test('a table grows up to its maximum', async () => {
    const body =
      '(loop $more (br_if $more (i32.ge_s (table.grow $t (ref.null func) (i32.const 100)) (i32.const 0)))) (local.set $result (table.size $t))';
    const instance = await load(await testArtifact(await component(await guest(body, '(table $t 1 funcref)'))));
    const size = Number(await instance.run(''));
    assert.ok(size > 1 && size <= MAX_TABLE_ELEMENTS, `${size} elements`);
  });

  for (const [name, body, fields] of [
    ['an endless loop', '(loop $l (br $l))', ''],
    [
      'an endless loop that catches the trap that kills it',
      '(loop $o (block $h (try_table (catch_all $h) (loop $l (br $l)))) (br $o))',
      '',
    ],
  ] as const) {
    test(`${name} lets timers run, and can be killed`, async () => {
      const instance = await load(await testArtifact(await component(await guest(body, fields))), {}, 50);
      let timerRuns = 0;
      const timer = setInterval(() => {
        timerRuns += 1;
        if (timerRuns === 5) instance.kill();
      }, 1);
      try {
        await assert.rejects(instance.run(''), WebAssembly.RuntimeError);
      } finally {
        clearInterval(timer);
      }
      // On a slow machine the timer may run after each yield, so that 5 runs of the timer may need only 5 yields.
      assert.ok(timerRuns >= 5 && instance.yields() >= 5, `${timerRuns} timer runs, ${instance.yields()} yields`);
    });
  }
});

test('endless recursion overflows the stack of its own instance only', async () => {
  const fields = '(func $f (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1)))';
  const core = await guest('(drop (call $f (i32.const 1)))', fields);
  const instance = await load(await testArtifact(await component(core)));
  await assert.rejects(instance.run(''), RangeError);
});

suite('a component that is not an inferlet is refused and leaves no files', () => {
  const header = Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0);
  const foreign = (wit: string) => async () => component(await wat(CORE), `package a:b@0.1.0;\n${wit}`, 'w');
  const CORE = `(module (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "run") (param i32 i32) (result i32) unreachable))`;
  const importing = (module: string, name: string, type: string) => async (wit: string) =>
    component(await guest('', `(import "${module}" "${name}" (func ${type}))`), wit);

  const cases: readonly (readonly [string, () => Promise<Uint8Array>, BuildCode, RegExp])[] = [
    ['an empty file', async () => new Uint8Array(0), 'not-wasm', /not WebAssembly/],
    ['text', async () => new TextEncoder().encode('export const run = 1;'), 'not-wasm', /not WebAssembly/],
    ['a core module', () => guest(''), 'core-module', /core Wasm module/],
    [
      'a component above the limit',
      async () => {
        const large = new Uint8Array(MAX_COMPONENT_BYTES + 1);
        large.set(header);
        return large;
      },
      'component-too-large',
      /64\.0 MiB; 64 MiB/,
    ],
    ['an empty component', async () => header, 'wrong-world', /does not export `run`/],
    [
      'a component cut short',
      async () => (await component(await guest(''))).subarray(0, 300),
      'build-failed',
      /not valid/,
    ],
    [
      'a component of another world',
      foreign('world w { export run: func(input: string) -> string; }'),
      'wrong-world',
      /another type.*async func\(input: string\) -> result<string, string>/,
    ],
    [
      'a component that needs WASI',
      async () => {
        const wit = `package wasi:random@0.2.0; interface random { get-random-u64: func() -> u64; } world w { import random; export run: async func(input: string) -> result<string, string>; }`;
        return component(
          await guest('', '(import "wasi:random/random@0.2.0" "get-random-u64" (func (result i64)))'),
          wit,
          'w',
        );
      },
      'wrong-world',
      /wasi:random\/random@0\.2\.0/,
    ],
    [
      'an import of a contract function with another type',
      async () => {
        const wit = (await contractText()).replace('random: func() -> u32;', 'random: func() -> f32;');
        return importing('pie:inferlet/runtime@0.1.0', 'random', '(result f32)')(wit);
      },
      'wrong-world',
      /random as func\(\) -> f32; it is func\(\) -> u32/,
    ],
    [
      'an import of a function that the contract lacks',
      async () => {
        const wit = (await contractText()).replace(
          'random: func() -> u32;',
          'random: func() -> u32; exec: func() -> u32;',
        );
        return importing('pie:inferlet/runtime@0.1.0', 'exec', '(result i32)')(wit);
      },
      'wrong-world',
      /runtime@0\.1\.0 exec, which this version does not have/,
    ],
    [
      'an import whose error type has an additional case',
      async () => {
        const wit = (await contractText()).replace('internal(string),', 'internal(string), other,');
        return importing('pie:inferlet/session@0.1.0', 'flush', '(result i32)')(wit);
      },
      'wrong-world',
      /session@0\.1\.0 flush/,
    ],
    [
      'a component of another minor version',
      async () => {
        const wit = (await contractText()).replace('pie:inferlet@0.1.0', 'pie:inferlet@0.2.0');
        return importing('pie:inferlet/runtime@0.2.0', 'random', '(result i32)')(wit);
      },
      'wrong-world',
      /pie:inferlet\/runtime@0\.2\.0/,
    ],
    [
      'a component that needs more memory at its start than the limit',
      async () => component(await guest('', '', '(memory (export "memory") 2000)')),
      'build-failed',
      /needs 125 MiB of memory/,
    ],
    [
      'a component with threads',
      async () => component(await guest('', '(memory 1 1 shared)')),
      'build-failed',
      /shared memory|not valid/,
    ],
    [
      'a component with garbage collection',
      async () => component(await guest('(drop (ref.i31 (i32.const 1)))')),
      'build-failed',
      /garbage collection|not valid/,
    ],
  ];
  for (const [name, make, code, message] of cases) {
    test(`${name} is refused with ${code}`, async () => {
      const directory = join(store, `refused-${code}`);
      await assert.rejects(makeArtifact(await make(), directory, { memoryPages: 1024 }), (error) => {
        assert.ok(error instanceof BuildError, String(error));
        assert.equal(error.code, code, error.message);
        assert.match(error.message, message);
        return error.hint.length > 10;
      });
      await assert.rejects(readdir(directory), { code: 'ENOENT' });
    });
  }

  test('an export whose name would end a string literal in the glue is refused', async () => {
    const bytes = await component(await guest('', `(func (export "';process.exit(1);'"))`));
    await assert.rejects(makeArtifact(bytes, join(store, 'name'), { memoryPages: 1024 }), /uses the name "';process/);
  });

  test('randomly changed bytes give a refusal with a code, or an artifact', async () => {
    const fields = '(import "pie:inferlet/runtime@0.1.0" "random" (func $random (result i32)))';
    const good = await component(await guest('(drop (call $random))', fields));
    const directory = join(store, 'random');
    const edits = fc.array(fc.tuple(fc.integer({ min: 8, max: good.length - 1 }), fc.nat(255)), {
      minLength: 1,
      maxLength: 3,
    });
    const property = fc.asyncProperty(edits, async (changes) => {
      const bytes = Uint8Array.from(good);
      for (const [at, value] of changes) bytes[at] = value;
      const error = await makeArtifact(bytes, directory, { memoryPages: 64 }).catch((thrown: unknown) => thrown);
      await rm(directory, { recursive: true, force: true });
      assert.ok(!(error instanceof Error) || error instanceof BuildError, String(error));
    });
    await fc.assert(property, { seed: 11, numRuns: 60 });
  });

  test('a type that doubles in size with every level is refused', async () => {
    const levels = Array.from({ length: 14 }, (_, i) => `type t${i + 1} = tuple<t${i}, t${i}>;`).join(' ');
    const wit = (await contractText()).replace(
      'random: func() -> u32;',
      `type t0 = u8; ${levels} random: func(a: list<t14>) -> u32;`,
    );
    const bytes = await importing('pie:inferlet/runtime@0.1.0', 'random', '(param i32 i32) (result i32)')(wit);
    await assert.rejects(makeArtifact(bytes, join(store, 'large'), { memoryPages: 64 }), /a type is too large/);
  });

  test('a number of memory pages that is not an integer from 0 to 65,536 is refused', async () => {
    for (const pages of ['many', '-1', '1.5', '65537', '12x'])
      await assert.rejects(runArtifactStage('none.wasm', store, pages), /is no number of memory pages/);
  });

  test('a refusal in the build process leaves no files in the store', async () => {
    const empty = await mkdtemp(join(store, 'refused-'));
    const outcome = await buildArtifact(Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0), { store: empty });
    assert.ok(!outcome.ok);
    assert.equal(outcome.code, 'wrong-world');
    assert.deepEqual(await readdir(empty), []);
  });

  test('a build that exceeds its time limit fails with build-timeout', async () => {
    const empty = await mkdtemp(join(store, 'slow-'));
    const bytes = await component(await guest('(local.set $result (i32.const 5))'));
    const outcome = await buildArtifact(bytes, { store: empty, timeoutMs: 20 });
    assert.ok(!outcome.ok);
    assert.equal(outcome.code, 'build-timeout');
    assert.deepEqual(await readdir(empty), []);
  });

  test('a build that exceeds its memory limit fails with build-failed', async () => {
    const bytes = await component(await guest('(local.set $result (i32.const 6))'));
    const outcome = await buildArtifact(bytes, { store: await mkdtemp(join(store, 'small-')), memoryMb: 70 });
    assert.ok(!outcome.ok);
    assert.equal(outcome.code, 'build-failed');
    assert.match(outcome.message, /70 MiB of memory|out of memory/);
  });

  test('an aborted build throws the reason of its signal', async () => {
    const empty = await mkdtemp(join(store, 'off-'));
    const bytes = await component(await guest('(local.set $result (i32.const 8))'));
    const reason = new Error('called off');
    const controller = new AbortController();
    const building = buildArtifact(bytes, { store: empty, signal: controller.signal });
    // The build takes much longer than 30 ms.
    setTimeout(() => controller.abort(reason), 30);
    await assert.rejects(building, reason);
    assert.deepEqual(await readdir(empty), []);
  });
});

test('an artifact with a damaged description is built again', async () => {
  const bytes = await component(await guest('(local.set $result (i32.const 9))'));
  const outcome = await buildArtifact(bytes, { store });
  assert.ok(outcome.ok);
  const { hash, directory } = outcome.artifact;
  const path = join(directory, 'artifact.json');
  const meta = JSON.parse(await readFile(path, 'utf8'));
  const [first, ...rest] = meta.coreModules;
  const damages = [
    { coreModules: [{ ...first, file: '../../../etc/passwd' }, ...rest] },
    { hash: '0'.repeat(64) },
    { coreModules: 'none' },
  ];
  for (const damage of damages) {
    await writeFile(path, JSON.stringify({ ...meta, ...damage }));
    assert.equal(await readArtifact(store, hash), null);
  }
  const again = await buildArtifact(bytes, { store });
  assert.ok(again.ok && !again.cached);
  assert.deepEqual(again.artifact.meta.coreModules, meta.coreModules);
});

test('an artifact with a missing or truncated file is built again', async () => {
  const bytes = await component(await guest('(local.set $result (i32.const 10))'));
  const outcome = await buildArtifact(bytes, { store });
  assert.ok(outcome.ok);
  const { hash, directory, coreModules } = outcome.artifact;
  for (const file of ['app.js', 'package.json', ...coreModules]) {
    const path = join(directory, file);
    const content = await readFile(path);
    await truncate(path, content.length - 1);
    assert.equal(await readArtifact(store, hash), null, `${file} is truncated`);
    await rm(path);
    assert.equal(await readArtifact(store, hash), null, `${file} is missing`);
    await writeFile(path, content);
    assert.ok(await readArtifact(store, hash), `${file} is whole`);
  }
  const [module = ''] = coreModules;
  await truncate(join(directory, module), 0);
  const again = await buildArtifact(bytes, { store });
  assert.ok(again.ok && !again.cached);
  assert.equal(await (await load(again.artifact)).run(''), '10');
});

test('publishing an artifact keeps a whole one of another build and replaces a damaged one', async () => {
  const ownStore = await mkdtemp(join(store, 'published-'));
  const outcome = await buildArtifact(await component(await guest('')), { store: ownStore });
  assert.ok(outcome.ok);
  const { hash, directory } = outcome.artifact;
  const [first, second] = [join(ownStore, 'first'), join(ownStore, 'second')];
  for (const copy of [first, second]) await cp(directory, copy, { recursive: true });
  const { ino } = await stat(directory);
  await publishArtifact(first, ownStore, hash);
  assert.equal((await stat(directory)).ino, ino);
  await writeFile(join(directory, 'artifact.json'), '{');
  await publishArtifact(second, ownStore, hash);
  assert.ok(await readArtifact(ownStore, hash));
  assert.deepEqual(await readdir(ownStore), [hash]);
});

test('the committed kernels.wasm computes the same as kernels.c, compiled now with clang', async () => {
  const fixtures = fileURLToPath(new URL('../fixtures/', import.meta.url));
  const source = join(fixtures, 'kernels.c');
  const compiled = join(store, 'kernels.wasm');
  const [, ...flags] =
    /^\/\/ clang( .*) -o kernels\.wasm kernels\.c$/m.exec(await readFile(source, 'utf8'))?.[1]?.split(' ') ?? [];
  await promisify(execFile)('clang', [...flags, '-o', compiled, source]);
  const [committed, rebuilt] = await Promise.all(
    [join(fixtures, 'kernels.wasm'), compiled].map(async (file) => {
      const { exports } = new WebAssembly.Instance(new WebAssembly.Module(await readFile(file)));
      return exports as Record<string, (a: number, b: number) => number>;
    }),
  );
  const names = Object.keys(rebuilt!).filter((name) => typeof rebuilt![name] === 'function');
  assert.deepEqual(
    Object.keys(committed!)
      .filter((name) => typeof committed![name] === 'function')
      .sort(),
    [...names].sort(),
  );
  assert.ok(names.length > 7, names.join());
  // Small arguments, because `ackermann` and `fibonacci` grow fast.
  for (const name of names)
    for (const [a, b] of [
      [0, 0],
      [1, 7],
      [2, 9],
      [12, 3],
    ] as const) {
      if (name === 'ackermann' && a > 2) continue;
      assert.equal(committed![name]!(a, b), rebuilt![name]!(a, b), `${name}(${a}, ${b})`);
    }
});
