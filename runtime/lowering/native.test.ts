import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { wrapModule } from '../build/native/wrap.ts';
import { testArtifact, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { compileWorld } from './compile.ts';
import { instantiate } from './instance.ts';
import { SliceRunner } from './slices.ts';

const QUEUE = 'pie:inferlet/queue@0.1.0';
const CONSTRUCT = [QUEUE, '[constructor]queue', '(param i32 i32) (result i32)'] as const;
const SYNCHRONIZE = [QUEUE, '[method]queue.synchronize', '(param i32) (result i32)'] as const;
const FUTURE = '[method]queue.synchronize';

async function run(component: Uint8Array, input = 'hi') {
  const program = await testProgram(await testArtifact(component));
  const { host, lines } = recordingHost();
  const execution = instantiate(program, compileWorld(host), { slices: new SliceRunner(), cpuLimitMs: 5000 });
  const ending = await execution.start(input);
  execution.dispose();
  return { ending, lines, form: program.plan.entry.form, handles: execution.guest.handleCount };
}

describe('guests without a language runtime', () => {
  it('run in the callback form and wait on a set that holds a future', async () => {
    const component = await watComponent(
      callbackGuest({
        imports: [
          CONSTRUCT,
          SYNCHRONIZE,
          [QUEUE, `[async-lower][future-read-0]${FUTURE}`, '(param i32 i32) (result i32)'],
          [QUEUE, `[future-drop-readable-0]${FUTURE}`, '(param i32)'],
          [QUEUE, '[resource-drop]queue', '(param i32)'],
          ['$root', '[waitable-set-new]', '(result i32)'],
          ['$root', '[waitable-set-drop]', '(param i32)'],
          ['$root', '[waitable-join]', '(param i32 i32)'],
        ],
        extra: '(global $queue (mut i32) (i32.const 0)) (global $set (mut i32) (i32.const 0))',
        locals: '(local i32)',
        // The queue's model is the text "42" at address 16. The read must answer -1, "blocked". `run` then returns the code 2, "wait", with the set.
        run: `(global.set $queue (call $_constructor_queue (i32.const 16) (i32.const 2)))
          (local.set 2 (call $_method_queue_synchronize (global.get $queue)))
          (if (i32.ne (call $_async_lower__future_read_0__method_queue_synchronize (local.get 2) (i32.const 256)) (i32.const -1)) (then unreachable))
          (global.set $set (call $_waitable_set_new_))
          (call $_waitable_join_ (local.get 2) (global.get $set))
          (i32.or (i32.shl (global.get $set) (i32.const 4)) (i32.const 2))`,
        // The event must be 4, "a future was read", and the result at 256 must have the case 0, "ok".
        callback: `(if (i32.ne (local.get 0) (i32.const 4)) (then unreachable))
          (if (i32.ne (i32.load8_u (i32.const 256)) (i32.const 0)) (then unreachable))
          (call $_waitable_join_ (local.get 1) (i32.const 0))
          (call $_future_drop_readable_0__method_queue_synchronize (local.get 1))
          (call $_waitable_set_drop_ (global.get $set))
          (call $_resource_drop_queue (global.get $queue))
          ${RETURN_42} (i32.const 0)`,
      }),
    );
    const { ending, lines, form, handles } = await run(component);
    assert.equal(form, 'callback');
    assert.deepEqual(ending, { kind: 'returned', ok: true, text: '42' });
    assert.deepEqual(lines, [
      'queue [constructor]queue("42")',
      'queue [method]queue.synchronize({"resource":"queue#1"})',
      'queue [resource-drop]queue({"resource":"queue#1"})',
    ]);
    assert.equal(handles, 0);
  });

  it('end with a text that names recursion when their stack leaves the memory', async () => {
    // As compilers do: a stack at the beginning of the memory grows down, here by 1 KiB with each call.
    const extra = `(global $stack (mut i32) (i32.const 65536))
      (func $deeper (result i32)
        (global.set $stack (i32.sub (global.get $stack) (i32.const 1024)))
        (i32.store (global.get $stack) (i32.const 1))
        (i32.add (call $deeper) (i32.const 1)))`;
    const { ending } = await run(await watComponent(callbackGuest({ extra, run: '(call $deeper)' })));
    assert.equal(ending.kind, 'trapped');
    assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /^memory access out of bounds: .*recursion/);
  });

  it('run in the plain form and block on a future', async () => {
    // The result of `run` lies at 32: the case of the read's result, then the address 16 and the length 2 of the text "42".
    const component = await watComponent(`(module
      (import "${QUEUE}" "[constructor]queue" (func $new (param i32 i32) (result i32)))
      (import "${QUEUE}" "[method]queue.synchronize" (func $synchronize (param i32) (result i32)))
      (import "${QUEUE}" "[future-read-0]${FUTURE}" (func $read (param i32 i32) (result i32)))
      (import "${QUEUE}" "[future-drop-readable-0]${FUTURE}" (func $drop (param i32)))
      (memory (export "memory") 1) (data (i32.const 16) "42")
      (global $top (mut i32) (i32.const 4096))
      (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (global.set $top (i32.add (global.get $top) (i32.const 256))) (global.get $top))
      (func (export "run") (param i32 i32) (result i32) (local i32)
        (local.set 2 (call $synchronize (call $new (i32.const 16) (i32.const 1))))
        (if (call $read (local.get 2) (i32.const 256)) (then unreachable))
        (call $drop (local.get 2))
        (i32.store8 (i32.const 32) (i32.load8_u (i32.const 256)))
        (i32.store (i32.const 36) (i32.const 16)) (i32.store (i32.const 40) (i32.const 2)) (i32.const 32)))`);
    const { ending, form } = await run(component);
    assert.equal(form, 'sync');
    assert.deepEqual(ending, { kind: 'returned', ok: true, text: '42' });
  });

  it('run when they are written in C', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-c-'));
    try {
      const output = join(directory, 'guest.wasm');
      const source = fileURLToPath(new URL('./fixtures/guest.c', import.meta.url));
      await promisify(execFile)('clang', [
        ...['--target=wasm32', '-O2', '-nostdlib', '-Wl,--no-entry', '-Wl,-z,stack-size=16384', '-o', output, source],
      ]);
      const { ending, lines } = await run(await wrapModule(await readFile(output)), '7');
      // The recording host makes every fourth answer an error.
      assert.deepEqual(ending, { kind: 'returned', ok: true, text: '{"input":"7","failed":1}' });
      assert.equal(lines.filter((line) => line.startsWith('queue [method]queue.synchronize')).length, 4);
      assert.ok(lines.includes('session send({"tag":"text","val":"from C"})'));
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});
