import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import fc from 'fast-check';
import { wat } from '../build/testing/wat.ts';
import { exposeState } from '../build/wasm/state.ts';
import { InstanceState } from './instance-state.ts';

/** The exported functions change every kind of state that an instance has, and return that state. */
const MODULE = `(module
  (memory $first 3)
  (memory $second 1 4)
  (global $a (mut i32) (i32.const 7))
  (global $b (mut i64) (i64.const -1))
  (global $c (mut f32) (f32.const 0.5))
  (global $d (mut f64) (f64.const nan))
  (global $fixed i32 (i32.const 3))
  (data (memory $first) (i32.const 100) "as it was made")
  (data (memory $second) (i32.const 65530) "edge")
  (func (export "store") (param i32 i32) (i32.store8 $first (local.get 0) (local.get 1)))
  (func (export "fill") (param i32 i32) (memory.fill $second (local.get 0) (local.get 1) (i32.const 64)))
  (func (export "set") (param i32 f64) (global.set $a (local.get 0)) (global.set $b (i64.extend_i32_s (local.get 0)))
    (global.set $c (f32.demote_f64 (local.get 1))) (global.set $d (local.get 1)))
  (func (export "grow") (drop (memory.grow $second (i32.const 1))))
  (func (export "byte") (param i32 i32) (result i32)
    (if (result i32) (local.get 0) (then (i32.load8_u $second (local.get 1))) (else (i32.load8_u $first (local.get 1)))))
  (func (export "size") (result i32) (memory.size $second))
  (func (export "globals") (result i32 i64 f32 f64) (global.get $a) (global.get $b) (global.get $c) (global.get $d)))`;

type Call = (...args: number[]) => unknown;

const PAGE_BYTES = 65_536;

function stateOf(exports: WebAssembly.Exports): unknown {
  const { byte, globals, size } = exports as Record<string, Call>;
  const first = Buffer.from(Array.from({ length: 3 * PAGE_BYTES }, (_, i) => byte?.(0, i) as number));
  const second = Buffer.from(Array.from({ length: PAGE_BYTES }, (_, i) => byte?.(1, i) as number));
  return { first, second, globals: globals?.(), size: size?.() };
}

describe('the state of an instance', () => {
  let module: WebAssembly.Module;
  before(async () => {
    module = await WebAssembly.compile(exposeState(await wat(MODULE)) as Uint8Array<ArrayBuffer>);
  });
  const make = () => {
    const { exports } = new WebAssembly.Instance(module);
    const state = new InstanceState();
    state.add(exports);
    return { exports: exports as Record<string, Call>, state };
  };

  it('equals that of a new instance after a restore, on random changes', () => {
    const asMade = stateOf(make().exports as never);
    const step = fc.oneof(
      fc.tuple(fc.constant('store'), fc.integer({ min: 0, max: 3 * PAGE_BYTES - 1 }), fc.nat(255)),
      fc.tuple(fc.constant('fill'), fc.integer({ min: 0, max: PAGE_BYTES - 64 }), fc.nat(255)),
      fc.tuple(fc.constant('set'), fc.integer(), fc.double()),
    );
    fc.assert(
      fc.property(fc.array(fc.array(step, { maxLength: 30, size: 'max' }), { minLength: 1, maxLength: 3 }), (runs) => {
        const { exports, state } = make();
        const snapshot = state.snapshot() ?? assert.fail('the state can be restored');
        for (const steps of runs) {
          for (const [name, ...args] of steps) exports[name]?.(...args);
          assert.equal(state.restore(snapshot), true);
        }
        assert.deepEqual(stateOf(exports as never), asMade);
      }),
      { seed: 20261121, numRuns: 40 },
    );
  });

  it('is not restored after a memory has grown', () => {
    const { exports, state } = make();
    const snapshot = state.snapshot() ?? assert.fail();
    exports.store?.(0, 9);
    exports.grow?.();
    assert.equal(state.restore(snapshot), false);
    assert.equal(exports.byte?.(0, 0), 9, 'the refused restore changes nothing');
  });

  it('counts the bytes of all memories, also for a program whose state cannot be restored', async () => {
    const { exports, state } = make();
    assert.equal(state.memoryBytes, 4 * PAGE_BYTES);
    exports.grow?.();
    assert.equal(state.memoryBytes, 5 * PAGE_BYTES);
    const text = '(memory 2) (memory 3) (table 1 funcref) (func (table.set 0 (i32.const 0) (ref.null func)))';
    const compiled = await WebAssembly.compile(exposeState(await wat(`(module ${text})`)) as Uint8Array<ArrayBuffer>);
    const other = new InstanceState();
    other.add(new WebAssembly.Instance(compiled).exports);
    assert.deepEqual([other.memoryBytes, other.snapshot()], [5 * PAGE_BYTES, null]);
  });

  it('has no snapshot if code changes tables or segments, a global holds no number, or the memory is too large', async () => {
    const others = [
      '(table 1 funcref) (func (export "f") (table.set 0 (i32.const 0) (ref.null func)))',
      '(table 1 funcref) (func (export "f") (drop (table.grow 0 (ref.null func) (i32.const 1))))',
      '(table 1 funcref) (func (export "f") (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1)))',
      '(table 2 funcref) (func (export "f") (table.copy 0 0 (i32.const 0) (i32.const 1) (i32.const 1)))',
      '(table 1 funcref) (elem $e funcref (ref.null func)) (func (export "f") (table.init $e (i32.const 0) (i32.const 0) (i32.const 1)))',
      '(elem $e funcref (ref.null func)) (func (export "f") (elem.drop $e))',
      '(memory 1) (data $d "x") (func (export "f") (data.drop $d))',
      '(global (mut funcref) (ref.null func))',
      '(global (mut externref) (ref.null extern))',
      '(global (mut v128) (v128.const i64x2 0 0))',
      '(memory 600)',
    ];
    for (const text of others) {
      const bytes = exposeState(await wat(`(module ${text})`));
      const state = new InstanceState();
      state.add(new WebAssembly.Instance(await WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>)).exports);
      // Not `equal`: the difference of a large snapshot would take all memory.
      assert.ok(state.snapshot() === null, text);
    }
  });

  it('can be restored when its program initializes memory from a segment repeatedly', async () => {
    const text =
      '(memory 1) (data $d "x") (func (export "f") (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)))';
    const compiled = await WebAssembly.compile(exposeState(await wat(`(module ${text})`)) as Uint8Array<ArrayBuffer>);
    const { exports } = new WebAssembly.Instance(compiled);
    const state = new InstanceState();
    state.add(exports);
    const snapshot = state.snapshot() ?? assert.fail();
    for (let i = 0; i < 2; i++) {
      (exports.f as Call)();
      assert.equal(state.restore(snapshot), true);
    }
  });
});
