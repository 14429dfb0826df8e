import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { print } from '@bytecodealliance/jco-transpile/wasm-tools';
import fc from 'fast-check';
import { wat } from '../testing/wat.ts';
import { readSections, SECTION, WasmError, writeSections } from './binary.ts';
import { meter } from './meter.ts';

const KERNELS = readFileSync(fileURLToPath(new URL('../fixtures/kernels.wasm', import.meta.url)));
const VENDOR = fileURLToPath(
  new URL('vendor/', import.meta.resolve('@bytecodealliance/jco-transpile').replace(/dist\/[^/]*$/, '')),
);

type Run = (...args: number[]) => number;

/**
 * An instance of metered bytes whose yield refills the tank with `fuel`, until `maxYields` yields have passed. The last
 * yield leaves the tank empty, which kills the instance.
 */
function instantiate(bytes: Uint8Array, fuel = 100, maxYields = Number.POSITIVE_INFINITY) {
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes.slice()), { host: { nothing: () => {} } });
  const state = { yields: 0 };
  const { pie_fuel: global, pie_yield: table } = instance.exports as {
    pie_fuel?: WebAssembly.Global;
    pie_yield?: WebAssembly.Table;
  };
  if (global && table) {
    global.value = fuel;
    table.set(
      0,
      hostFunction(() => {
        state.yields += 1;
        global.value = state.yields >= maxYields ? 0 : fuel;
      }),
    );
  }
  return {
    exports: instance.exports as Record<string, Run>,
    state,
    memory: instance.exports.memory as WebAssembly.Memory,
  };
}

/** A host function that a table can hold: a module imports it as `m.y` and exports it again as `y`. */
function hostFunction(y: () => void): WebAssembly.ExportValue {
  const bytes = Uint8Array.of(
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0],
    ...[2, 7, 1, 1, 0x6d, 1, 0x79, 0, 0, 7, 5, 1, 1, 0x79, 0, 0],
  );
  return new WebAssembly.Instance(new WebAssembly.Module(bytes), { m: { y } }).exports.y as WebAssembly.ExportValue;
}

/**
 * Removes the checks from the text of a metered module; the result must equal the text of the original. The patterns match, in this order:
 * counts at loops, charges at the entries of functions, tests of the fuel after calls of imports, charges of bulk instructions, and the choice
 * between a bulk instruction and its function for pieces.
 */
function withoutChecks(text: string): string {
  const rare = String.raw`\(@metadata\.code\.branch_hint "\\00"\)\n`;
  return text
    .replace(
      new RegExp(
        String.raw`local\.get (\d+)\ni32\.const 1\ni32\.sub\nlocal\.tee \1\ni32\.const 0\ni32\.lt_s\n${rare}if ;; label = @\d+\ncall \d+\ni32\.const 15\nlocal\.set \1\nend\n`,
        'g',
      ),
      '',
    )
    .replace(
      new RegExp(
        String.raw`global\.get (\d+)\ni32\.const \d+\ni32\.sub\nlocal\.tee (\d+)\nglobal\.set \1\nlocal\.get \2\ni32\.const 0\ni32\.le_s\n${rare}if ;; label = @\d+\ncall \d+\nend\n(?:i32\.const 16\nlocal\.set \d+\n)?`,
        'g',
      ),
      '',
    )
    .replace(
      new RegExp(
        String.raw`(?<!global\.set \d+\n)global\.get \d+\ni32\.const 0\ni32\.le_s\n${rare}if ;; label = @\d+\ncall \d+\nend\n`,
        'g',
      ),
      '',
    )
    .replace(
      new RegExp(
        String.raw`local\.tee (\d+)\nglobal\.get (\d+)\nlocal\.get \1\ni32\.const \d\ni32\.shr_u\ni32\.sub\nglobal\.set \2\nglobal\.get \2\ni32\.const 0\ni32\.le_s\n${rare}if ;; label = @\d+\ncall \d+\nend\n`,
        'g',
      ),
      '',
    )
    .replace(
      new RegExp(
        String.raw`local\.get \d+\ni32\.const 1048576\ni32\.gt_u\n${rare}if \(type \d+\) \(param i32 i32 i32\) ;; label = @\d+\ncall \d+\nelse\n(memory\.(?:fill|copy)[^\n]*\n)end\n`,
        'g',
      ),
      '$1',
    );
}

/** Functions of a module as text, one instruction a line, without indentation and declarations of locals. */
async function functions(bytes: Uint8Array): Promise<string[]> {
  const lines = (await print(bytes))
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => !line.startsWith('(local '));
  return withoutChecks(lines.join('\n'))
    .split('\n(func ')
    .slice(1)
    .map((text) =>
      text.replace(/\n\((?:table|memory|tag|global|export|elem|data|start)[\s\S]*$/, '').replace(/[\s)]+$/, ''),
    );
}

const withoutCustom = (bytes: Uint8Array) =>
  writeSections(readSections(bytes).filter(({ id }) => id !== SECTION.custom));

suite('metered modules equal the originals except for checks', () => {
  const modules = {
    'the C kernels': KERNELS,
    'a Rust module of jco': readFileSync(`${VENDOR}wasm-tools.core2.wasm`),
  };
  for (const [name, bytes] of Object.entries(modules)) {
    test(`the functions of ${name} differ only by checks`, async () => {
      const plain = withoutCustom(bytes);
      const metered = meter(plain);
      assert.ok(metered.checks > 0);
      assert.ok(WebAssembly.validate(metered.bytes.slice()));
      const [before, after] = [await functions(plain), await functions(metered.bytes)];
      // Metering adds four functions: refill, yield, long fill and long copy.
      assert.equal(after.length, before.length + 4);
      assert.ok(
        before.every((text, index) => text === after[index]),
        'functions differ only by checks',
      );
    });
  }

  test('a large Rust module of jco stays valid', () => {
    const metered = meter(readFileSync(`${VENDOR}wasm-tools.core.wasm`));
    assert.ok(metered.checks > 1000);
    assert.ok(WebAssembly.validate(metered.bytes.slice()));
  });
});

suite('metering preserves the results of a program', () => {
  test('the C kernels return the same results with any quantum', () => {
    const metered = meter(KERNELS);
    const calls = fc.tuple(
      fc.constantFrom('collatz', 'sort', 'multiply', 'bulk', 'machine', 'divide'),
      fc.integer({ min: 0, max: 0xffffff }),
      fc.integer({ min: 0, max: 0x3fff }),
      fc.integer({ min: 1, max: 3000 }),
    );
    const run = fc.property(calls, ([name, a, b, fuel]) => {
      const instance = instantiate(metered.bytes, fuel);
      assert.equal(instance.exports[name]!(a, b), instantiate(KERNELS).exports[name]!(a, b));
    });
    fc.assert(run, { seed: 1, numRuns: 150 });
    assert.equal(instantiate(metered.bytes).exports.fibonacci!(15), 610);
    assert.equal(instantiate(metered.bytes).exports.ackermann!(2, 9), 21);
  });

  test('random structured programs return the same results and leave the same memory', async () => {
    let totalYields = 0;
    const property = fc.asyncProperty(
      programs(),
      fc.integer(),
      fc.integer({ min: 1, max: 60 }),
      async (text, input, fuel) => {
        const bytes = await wat(text);
        const metered = meter(bytes);
        const [plain, checked] = [instantiate(bytes), instantiate(metered.bytes, fuel)];
        assert.equal(checked.exports.main!(input), plain.exports.main!(input));
        assert.deepEqual(new Uint8Array(checked.memory.buffer), new Uint8Array(plain.memory.buffer));
        totalYields += checked.state.yields;
      },
    );
    await fc.assert(property, { seed: 7, numRuns: 120 });
    assert.ok(totalYields > 1000, `the programs yielded ${totalYields} times`);
  });
});

/** Programs that end: loops count down, and no function calls itself, even through others. */
function programs(): fc.Arbitrary<string> {
  const { statement } = fc.letrec<{ statement: string; expression: string }>((tie) => ({
    expression: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom('(local.get $a)', '(local.get $b)', '(i32.const 1)', '(i32.const -7)', '(i32.const 1000003)'),
      fc
        .tuple(fc.constantFrom('add', 'sub', 'mul', 'xor', 'rotl', 'lt_s', 'and'), tie('expression'), tie('expression'))
        .map(([op, a, b]) => `(i32.${op} ${a} ${b})`),
      fc.tuple(tie('expression'), tie('expression'), tie('expression')).map(([a, b, c]) => `(select ${a} ${b} ${c})`),
      tie('expression').map((a) => `(i32.load (i32.and ${a} (i32.const 1020)))`),
      tie('expression').map((a) => `(call $leaf ${a})`),
      fc
        .tuple(tie('expression'), tie('expression'))
        .map(([a, b]) => `(if (result i32) ${a} (then ${b}) (else (i32.const 3)))`),
    ),
    statement: fc.oneof(
      { maxDepth: 4 },
      tie('expression').map((a) => `(local.set $a ${a})`),
      tie('expression').map((a) => `(local.set $b ${a})`),
      fc
        .tuple(tie('expression'), tie('expression'))
        .map(([a, b]) => `(i32.store (i32.and ${a} (i32.const 1020)) ${b})`),
      tie('expression').map((a) => `(memory.fill (i32.const 1024) ${a} (i32.and ${a} (i32.const 511)))`),
      fc.tuple(tie('statement'), tie('statement')).map(([a, b]) => `${a} ${b}`),
      fc
        .tuple(tie('expression'), tie('statement'), tie('statement'))
        .map(([c, a, b]) => `(if ${c} (then ${a}) (else ${b}))`),
      fc
        .tuple(tie('expression'), tie('statement'), tie('statement'))
        .map(([c, a, b]) => `(block $out (block $in ${a} (br_table $in $out (i32.and ${c} (i32.const 1)))) ${b})`),
      fc.tuple(tie('expression'), tie('statement')).map(([c, a]) => `(block $end ${a} (br_if $end ${c}) ${a})`),
      fc
        .tuple(fc.integer({ min: 1, max: 40 }), tie('statement'))
        .map(([n, a]) => `(call $push (i32.const ${n})) (loop $again ${a} (br_if $again (call $count)))(call $pop)`),
      tie('expression').map((a) => `(call $work ${a})`),
    ),
  }));
  const local = '(local $b i32)';
  const several = fc.array(statement, { minLength: 4, maxLength: 10 }).map((parts) => parts.join(' '));
  return fc.tuple(several, several, several).map(
    ([main, work, more]) => `(module
      (memory (export "memory") 1)
      (global $sp (mut i32) (i32.const 4096))
      (global $budget (mut i32) (i32.const 3000))
      (func $push (param i32) (global.set $sp (i32.add (global.get $sp) (i32.const 4))) (i32.store (global.get $sp) (local.get 0)))
      (func $pop (global.set $sp (i32.sub (global.get $sp) (i32.const 4))))
      (func $count (result i32)
        (i32.store (global.get $sp) (i32.sub (i32.load (global.get $sp)) (i32.const 1)))
        (global.set $budget (i32.sub (global.get $budget) (i32.const 1)))
        (i32.and (i32.gt_s (i32.load (global.get $sp)) (i32.const 0)) (i32.gt_s (global.get $budget) (i32.const 0))))
      (func $leaf (param $a i32) (result i32) (i32.mul (local.get $a) (i32.const 31)))
      (func $last (param $a i32) ${local} (i32.store (i32.const 512) (local.get $a)) (local.set $b (local.get $a)))
      (func $deep (param $a i32) ${local} ${more.replaceAll('$work', '$last')})
      (func $work (param $a i32) ${local} ${work.replaceAll('$work', '$deep')})
      (func (export "main") (param $a i32) (result i32) ${local} ${main} (i32.xor (local.get $a) (local.get $b))))`,
  );
}

suite('code without end yields and can be killed at the yield', () => {
  const endlessCode: Readonly<Record<string, string>> = {
    'an empty loop': '(func (export "main") (loop $l (br $l)))',
    'a loop with results on the stack':
      '(func (export "main") (i32.const 1) (loop $l (param i32) (br $l)) unreachable)',
    'a loop left and entered by a table':
      '(func (export "main") (loop $l (block $x (br_table $x $l $x (i32.const 0))) (br $l)))',
    'tail calls': '(func $f (export "main") (return_call $f))',
    'tail calls in a circle': '(func $f (export "main") (return_call $g)) (func $g (return_call $f))',
    'indirect tail calls':
      '(table funcref (elem $f)) (type $t (func)) (func $f (export "main") (return_call_indirect (type $t) (i32.const 0)))',
    'tail calls by reference':
      '(type $t (func)) (elem declare func $f) (func $f (export "main") (return_call_ref $t (ref.func $f)))',
    'exceptions thrown in a circle':
      '(tag $e) (func $f (throw $e)) (func (export "main") (loop $l (block $h (try_table (catch_all $h) (call $f))) (br $l)))',
    'a loop that catches everything but the kill':
      '(type $t (func)) (func (export "main") (loop $o (block $h (try_table (catch_all $h) (loop $l (br $l)))) (br $o)))',
    'a loop that catches everything, with legacy exceptions':
      '(func (export "main") loop $o try loop $l br $l end catch_all end br $o end)',
    'large fills':
      '(memory 1) (func (export "main") (loop $l (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br $l)))',
    'forty functions that each call the next one twice (2^40 calls)': `${Array.from({ length: 40 }, (_, i) => `(func $f${i} ${i === 39 ? 'nop' : `(call $f${i + 1}) (call $f${i + 1})`})`).join('\n')} (func (export "main") (call $f0))`,
    'forty functions that each call the next one twice through a table': `(type $t (func)) (table 40 40 funcref) (elem (i32.const 0) ${Array.from({ length: 40 }, (_, i) => `$f${i}`).join(' ')}) ${Array.from({ length: 40 }, (_, i) => `(func $f${i} ${i === 39 ? 'nop' : `(call_indirect (type $t) (i32.const ${i + 1})) (call_indirect (type $t) (i32.const ${i + 1}))`})`).join('\n')} (func (export "main") (call $f0))`,
  };
  for (const [name, fields] of Object.entries(endlessCode)) {
    test(`yields, and ends at a yield without fuel: ${name}`, async () => {
      const metered = meter(await wat(`(module ${fields})`));
      const { exports, state } = instantiate(metered.bytes, 1000, 20);
      assert.throws(() => exports.main!(), WebAssembly.RuntimeError);
      assert.equal(state.yields, 20);
    });
  }

  test('recursion that would overflow the stack yields first', async () => {
    const metered = meter(
      await wat(
        '(module (func $f (export "main") (param i32) (result i32) (i32.add (call $f (local.get 0)) (i32.const 1))))',
      ),
    );
    const { exports, state } = instantiate(metered.bytes, 100, 3);
    assert.throws(() => exports.main!(1), WebAssembly.RuntimeError);
    assert.equal(state.yields, 3);
  });

  test('yields, and ends at a yield without fuel: an endless start function, which the host calls', async () => {
    const metered = meter(await wat('(module (func $s (loop $l (br $l))) (start $s))'));
    const { exports, state } = instantiate(metered.bytes, 1000, 20);
    assert.throws(() => exports.pie_start!(), WebAssembly.RuntimeError);
    assert.equal(state.yields, 20);
  });

  test('a loop traps when the host gave the module neither fuel nor a yield function', async () => {
    const metered = meter(await wat('(module (func (export "main") (loop $l (br $l))))'));
    const instance = new WebAssembly.Instance(new WebAssembly.Module(metered.bytes.slice()));
    assert.throws(() => (instance.exports.main as Run)(), WebAssembly.RuntimeError);
  });

  test('the start function of a module without checks becomes an export, too', async () => {
    const metered = meter(await wat('(module (import "host" "nothing" (func $n)) (start $n))'));
    assert.equal(metered.checks, 0);
    assert.equal(WebAssembly.Module.exports(new WebAssembly.Module(metered.bytes.slice()))[0]?.name, 'pie_start');
  });
});

suite('the work per unit of fuel is bounded', () => {
  test('a long path without loops has checks', async () => {
    const long = '(local.set 0 (i32.add (local.get 0) (i32.const 1)))'.repeat(1000);
    const { bytes, checks } = meter(
      await wat(`(module (func (export "main") (param i32) (result i32) ${long} (local.get 0)))`),
    );
    // 1,000 parts of 4 instructions, with at most 512 instructions between two checks.
    assert.ok(checks >= 7, `${checks} checks`);
    assert.equal(instantiate(bytes, 1).exports.main!(5), 5 + 1000);
  });

  test('checks cover the longest path to a block', async () => {
    const part = '(local.set 0 (i32.add (local.get 0) (i32.const 1)))'.repeat(60);
    const text = `(module (func (export "main") (param i32) (result i32)
      ${`(block $b (br_if $b (i32.and (local.get 0) (i32.const 1))) ${part})`.repeat(10)} (local.get 0)))`;
    const { bytes, checks } = meter(await wat(text));
    // The longest path, 10 blocks of 60 parts with 4 instructions, has more than four times 512 instructions.
    assert.ok(checks >= 4, `${checks} checks`);
    assert.equal(instantiate(bytes, 1).exports.main!(2), 2 + 10 * 60);
  });

  test('a loop checks again after a call of an import that used up the fuel', async () => {
    const loop = (call: string) =>
      `(func (export "main") (param i32) (loop $l ${call} (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))`;
    for (const call of ['(call $host)', '(call $small)']) {
      const text = `(module (import "host" "nothing" (func $host)) (func $small (call $host)) ${loop(call)})`;
      const module = new WebAssembly.Module(meter(await wat(text)).bytes.slice());
      let yields = 0;
      const drain = () => {
        fuel.value = 0;
      };
      const { exports } = new WebAssembly.Instance(module, { host: { nothing: drain } });
      const fuel = exports.pie_fuel as WebAssembly.Global;
      fuel.value = 1000;
      const refill = () => {
        yields += 1;
        fuel.value = 1000;
      };
      (exports.pie_yield as WebAssembly.Table).set(0, hostFunction(refill));
      (exports.main as Run)(10);
      assert.equal(yields, 10);
    }
  });

  test('small functions without calls have no checks', async () => {
    const bytes = await wat(
      '(module (func (export "main") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1))))',
    );
    assert.equal(meter(bytes).checks, 0);
  });

  test('bulk instructions pay by size', async () => {
    const text =
      '(module (memory 64) (func (export "main") (param i32) (memory.fill (i32.const 0) (i32.const 7) (local.get 0))))';
    const metered = meter(await wat(text));
    const run = (size: number) => {
      const { exports, state } = instantiate(metered.bytes, 10_000);
      for (let i = 0; i < 10; i += 1) exports.main!(size);
      return state.yields;
    };
    assert.equal(run(64), 0);
    // 1 MiB costs 16,384 units, more than the tank. A fill pays for its whole size; a long one then pays again for each piece of 1 MiB but the last.
    assert.equal(run(1 << 20), 10);
    assert.equal(run(4 << 20), 40);
  });

  test('a long fill or copy in pieces equals the single instruction', async () => {
    const text = `(module (memory (export "memory") 64)
      (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
      (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2))))`;
    const plain = await wat(text);
    const original = new WebAssembly.Instance(new WebAssembly.Module(plain.slice())).exports;
    const metered = instantiate(meter(plain).bytes, 1000);
    const memories = [original.memory as WebAssembly.Memory, metered.memory].map(
      ({ buffer }) => new Uint8Array(buffer),
    );
    const noise = Uint8Array.from({ length: 4 << 20 }, (_, i) => (i * 2_654_435_761) >>> 13);
    const trapped = (run: () => unknown): boolean => {
      try {
        run();
        return false;
      } catch (error) {
        assert.ok(error instanceof WebAssembly.RuntimeError);
        return true;
      }
    };
    const at = fc.oneof(fc.nat(5 << 20), fc.constantFrom(0, 1, 4 << 20, 0xffff_ffff));
    const size = fc.oneof(fc.nat(5 << 20), fc.constantFrom(0, 1 << 20, (1 << 20) + 1, 2 << 20, 4 << 20, 0xffff_ffff));
    const property = fc.property(fc.constantFrom('fill', 'copy'), at, at, size, (name, to, from, length) => {
      for (const memory of memories) memory.set(noise);
      const before = metered.state.yields;
      const traps = trapped(() => (original[name] as Run)(to, from, length));
      assert.equal(
        trapped(() => metered.exports[name]!(to, from, length)),
        traps,
      );
      if (!traps && length > 2 << 20)
        assert.ok(metered.state.yields > before + 1, 'a long copy yields between its pieces');
      assert.ok(Buffer.from(memories[0]!.buffer).equals(Buffer.from(memories[1]!.buffer)));
    });
    fc.assert(property, { seed: 7, numRuns: 60 });
  });
});

suite('modules that cannot be metered are refused', () => {
  const refused: Readonly<Record<string, [string, RegExp]>> = {
    'garbage collection types': ['(module (type (struct (field i32))) (func (loop)))', /garbage collection/],
    'garbage collection instructions': ['(module (func (drop (ref.i31 (i32.const 1)))))', /garbage collection/],
    threads: ['(module (memory 1 1 shared) (func (loop)))', /shared memory/],
    'an import from a module named __proto__': ['(module (import "__proto__" "then" (func)))', /`__proto__`/],
    'an import named constructor': ['(module (import "m" "constructor" (func)))', /`constructor`/],
    'an export named prototype': ['(module (func (export "prototype")))', /`prototype`/],
    'an export that the platform adds': ['(module (func (export "pie_start")))', /`pie_start`, which this platform/],
    '64-bit memory in an import': ['(module (import "m" "m" (memory i64 1)) (func (loop)))', /64-bit/],
  };
  for (const [name, [text, message]] of Object.entries(refused)) {
    test(`refused: ${name}`, async () => {
      const bytes = await wat(text);
      assert.throws(
        () => meter(bytes),
        (error) => error instanceof WasmError && message.test(error.message),
      );
    });
  }

  test('broken bytes give WasmError, or a valid module if V8 accepts them', () => {
    const edits = fc.array(fc.tuple(fc.nat(KERNELS.length - 1), fc.integer({ min: 0, max: 255 })), {
      minLength: 1,
      maxLength: 4,
    });
    const property = fc.property(edits, fc.nat(KERNELS.length), (changes, cut) => {
      const bytes = Uint8Array.from(KERNELS);
      for (const [at, value] of changes) bytes[at] = value;
      const input = cut % 5 === 0 ? bytes.subarray(0, cut) : bytes;
      try {
        const metered = meter(input);
        if (WebAssembly.validate(input.slice())) assert.ok(WebAssembly.validate(metered.bytes.slice()));
      } catch (error) {
        assert.ok(error instanceof WasmError, String(error));
      }
    });
    fc.assert(property, { seed: 3, numRuns: 1500 });
  });
});
