import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { testArtifact, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, type WatGuest, watComponent } from '../testing/wat.ts';
import { compileWorld, type HostTable } from './compile.ts';
import type { Execution } from './execution.ts';
import { instantiate } from './instance.ts';
import { DEFAULT_SLICE_POLICY, SliceRunner } from './slices.ts';
import type { TrapCode } from './trap.ts';

const CPU_LIMIT_MS = 60;
const QUEUE = 'pie:inferlet/queue@0.1.0';
const SESSION = 'pie:inferlet/session@0.1.0';
const RUNTIME = 'pie:inferlet/runtime@0.1.0';
const DROP = [QUEUE, '[resource-drop]queue', '(param i32)'] as const;
const NEW_QUEUE = [QUEUE, '[constructor]queue', '(param i32 i32) (result i32)'] as const;
const SYNCHRONIZE = [QUEUE, '[method]queue.synchronize', '(param i32) (result i32)'] as const;
const READ = [QUEUE, '[async-lower][future-read-0][method]queue.synchronize', '(param i32 i32) (result i32)'] as const;
const SEND = [SESSION, 'send', '(param i32 i32 i32 i32)'] as const;
const LOG = [RUNTIME, 'log', '(param i32 i32 i32)'] as const;
const NEW_SET = ['$root', '[waitable-set-new]', '(result i32)'] as const;

const { host } = recordingHost();

interface RunOptions {
  readonly table?: HostTable;
  readonly slices?: SliceRunner;
  readonly cpuLimitMs?: number;
}

async function instanceOf(guest: WatGuest, { table = host, slices, cpuLimitMs = CPU_LIMIT_MS }: RunOptions = {}) {
  const program = await testProgram(await testArtifact(await watComponent(callbackGuest(guest)), 64));
  return instantiate(program, compileWorld(table), { slices: slices ?? new SliceRunner(), cpuLimitMs });
}

async function run(guest: WatGuest, options: RunOptions = {}) {
  const execution = await instanceOf(guest, options);
  const ending = await execution.start('input');
  execution.dispose();
  return { ending, cpuMs: execution.cpuMs };
}

interface Case {
  readonly name: string;
  readonly guest: WatGuest;
  readonly code?: TrapCode;
  readonly message: RegExp;
}

// `run` and the callback return a code in the low four bits: 0 exits, 1 yields, 2 waits for the waitable set of the index in the other bits.
// The arguments of `$return` are the case of `result` (0 for ok), then the address and the length of the text.
const BAD_RESULTS: Case[] = [
  {
    name: 'a result past the end of memory',
    guest: { run: '(call $return (i32.const 0) (i32.const -16) (i32.const 4)) (i32.const 0)' },
    message: /out of bounds/,
  },
  {
    name: 'a result whose length wraps around',
    guest: { run: '(call $return (i32.const 0) (i32.const 16) (i32.const -1)) (i32.const 0)' },
    message: /out of bounds/,
  },
  {
    name: 'a result that is not UTF-8',
    guest: { run: '(call $return (i32.const 0) (i32.const 16) (i32.const 4)) (i32.const 0)' },
    message: /not UTF-8/,
  },
  {
    name: 'an unknown case',
    guest: { run: '(call $return (i32.const 7) (i32.const 16) (i32.const 2)) (i32.const 0)' },
    message: /no case of result/,
  },
  { name: 'two results', guest: { run: `${RETURN_42} ${RETURN_42} (i32.const 0)` }, message: /returned twice/ },
  { name: 'no result', guest: { run: '(i32.const 0)' }, message: /without a result/ },
  { name: 'an unknown callback code', guest: { run: '(i32.const 13)' }, message: /not a callback code/ },
  // 82 is 5 * 16 + 2: the guest waits for the set 5.
  {
    name: 'waiting on a set that it does not hold',
    guest: { run: '(i32.const 82)' },
    message: /not a live waitable set/,
  },
  {
    name: 'waiting for nothing',
    guest: { imports: [NEW_SET], run: '(i32.or (i32.shl (call $_waitable_set_new_) (i32.const 4)) (i32.const 2))' },
    message: /nothing will ever settle/,
  },
];

const BAD_CALLS: Case[] = [
  {
    name: 'a handle that it never had',
    guest: { imports: [DROP], run: '(call $_resource_drop_queue (i32.const 1)) (i32.const 0)' },
    message: /not a live handle/,
  },
  {
    name: 'a handle after its drop',
    guest: {
      imports: [DROP, NEW_QUEUE, SYNCHRONIZE],
      locals: '(local i32)',
      run: '(local.set 2 (call $_constructor_queue (i32.const 16) (i32.const 2))) (call $_resource_drop_queue (local.get 2)) (drop (call $_method_queue_synchronize (local.get 2))) (i32.const 0)',
    },
    message: /not a live handle/,
  },
  {
    name: 'a queue for a future',
    guest: {
      imports: [NEW_QUEUE, READ],
      run: '(drop (call $_async_lower__future_read_0__method_queue_synchronize (call $_constructor_queue (i32.const 16) (i32.const 2)) (i32.const 256))) (i32.const 0)',
    },
    message: /not a live future/,
  },
  {
    name: 'a future that is read twice at once',
    guest: {
      imports: [NEW_QUEUE, SYNCHRONIZE, READ],
      locals: '(local i32)',
      run: '(local.set 2 (call $_method_queue_synchronize (call $_constructor_queue (i32.const 16) (i32.const 2)))) (drop (call $_async_lower__future_read_0__method_queue_synchronize (local.get 2) (i32.const 256))) (drop (call $_async_lower__future_read_0__method_queue_synchronize (local.get 2) (i32.const 256))) (i32.const 0)',
    },
    message: /under way/,
  },
  {
    name: 'an unaligned address for a future',
    guest: {
      imports: [NEW_QUEUE, SYNCHRONIZE, READ],
      run: '(drop (call $_async_lower__future_read_0__method_queue_synchronize (call $_method_queue_synchronize (call $_constructor_queue (i32.const 16) (i32.const 2))) (i32.const 257))) (i32.const 0)',
    },
    message: /unaligned/,
  },
  {
    name: 'a message outside its memory',
    guest: {
      imports: [SEND],
      run: '(call $send (i32.const 1) (i32.const 65000) (i32.const 1000) (i32.const 256)) (i32.const 0)',
    },
    message: /out of bounds/,
  },
  {
    name: 'an answer outside its memory',
    guest: {
      imports: [SEND],
      run: '(call $send (i32.const 1) (i32.const 16) (i32.const 2) (i32.const 65532)) (i32.const 0)',
    },
    message: /out of bounds/,
  },
  {
    name: 'an unknown kind of message',
    guest: {
      imports: [SEND],
      run: '(call $send (i32.const 2) (i32.const 16) (i32.const 2) (i32.const 256)) (i32.const 0)',
    },
    message: /no case of message/,
  },
  {
    name: 'an unknown log level',
    guest: { imports: [LOG], run: '(call $log (i32.const 4) (i32.const 16) (i32.const 2)) (i32.const 0)' },
    message: /no case of log-level/,
  },
  {
    name: 'handles without end',
    guest: { imports: [NEW_SET], run: '(loop (drop (call $_waitable_set_new_)) (br 0)) (i32.const 0)' },
    message: /more than 16384 handles/,
  },
  {
    name: 'an allocator that answers wild addresses',
    guest: {
      realloc: '(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const -8))',
      run: '(i32.const 0)',
    },
    message: /out of bounds/,
  },
];

const GREEDY: Case[] = [
  { name: 'a loop', guest: { run: '(loop (br 0)) (i32.const 0)' }, code: 'cpu-limit', message: /CPU time/ },
  {
    name: 'a loop that catches the trap of its CPU limit',
    guest: { run: '(loop $l (block $b (try_table (catch_all $b) (loop (br 0)))) (br $l)) (i32.const 0)' },
    code: 'cpu-limit',
    message: /CPU time/,
  },
  {
    name: 'endless tail calls',
    guest: {
      extra: '(func $f (param i32) (result i32) (return_call $f (i32.const 1)))',
      run: '(return_call $f (i32.const 0))',
    },
    code: 'cpu-limit',
    message: /CPU time/,
  },
  {
    name: 'a loop of large fills',
    guest: { run: '(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65000)) (br 0)) (i32.const 0)' },
    code: 'cpu-limit',
    message: /CPU time/,
  },
  {
    name: 'yields without end',
    guest: { run: '(i32.const 1)', callback: '(i32.const 1)' },
    code: 'cpu-limit',
    message: /CPU time/,
  },
  {
    name: 'an allocator that never returns',
    guest: {
      realloc: '(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (loop (br 0)) (i32.const 0))',
      run: '(i32.const 0)',
    },
    code: 'cpu-limit',
    message: /CPU time|computed for/,
  },
  {
    name: 'deep recursion',
    guest: { extra: '(func $f (call $f) (call $f))', run: '(call $f) (i32.const 0)' },
    message: /stack/,
  },
  {
    name: 'host errors swallowed in a loop',
    guest: {
      imports: [DROP],
      run: '(loop $l (block $b (try_table (catch_all $b) (call $_resource_drop_queue (i32.const 1)))) (br $l)) (i32.const 0)',
    },
    message: /not a live handle/,
  },
  {
    name: 'memory without end',
    guest: { run: '(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)' },
    message: /unreachable/,
  },
];

const SETTLED = Promise.resolve({ tag: 'ok' });

/** A guest that calls `synchronize` again each time its last call has completed. */
const ASKS_FOR_EVER: WatGuest = {
  imports: [
    NEW_QUEUE,
    SYNCHRONIZE,
    READ,
    NEW_SET,
    [QUEUE, '[future-drop-readable-0][method]queue.synchronize', '(param i32)'],
    ['$root', '[waitable-join]', '(param i32 i32)'],
  ],
  extra: `(global $queue (mut i32) (i32.const 0)) (global $set (mut i32) (i32.const 0))
    (func $ask (result i32) (local i32)
      (local.set 0 (call $_method_queue_synchronize (global.get $queue)))
      (drop (call $_async_lower__future_read_0__method_queue_synchronize (local.get 0) (i32.const 256)))
      (call $_waitable_join_ (local.get 0) (global.get $set))
      (i32.or (i32.shl (global.get $set) (i32.const 4)) (i32.const 2)))`,
  run: `(global.set $queue (call $_constructor_queue (i32.const 16) (i32.const 2)))
    (global.set $set (call $_waitable_set_new_)) (call $ask)`,
  callback: `(call $_waitable_join_ (local.get 1) (i32.const 0))
    (call $_future_drop_readable_0__method_queue_synchronize (local.get 1)) (call $ask)`,
};

for (const [title, cases] of [
  ['a guest that breaks the ABI in its result dies alone:', BAD_RESULTS],
  ['a guest that breaks the ABI in a call dies alone:', BAD_CALLS],
  ['a guest that wants too much dies alone:', GREEDY],
] as const) {
  describe(title, () => {
    for (const { name, guest, code, message } of cases) {
      it(name, async () => {
        // On a slow machine, a low limit could end any other guest before its own fault does.
        const { ending } = await run(guest, { cpuLimitMs: code === 'cpu-limit' ? CPU_LIMIT_MS : 10_000 });
        assert.equal(ending.kind, 'trapped');
        assert.equal(ending.kind === 'trapped' && ending.trap.code, code ?? 'trap');
        assert.match(ending.kind === 'trapped' ? ending.trap.message : '', message);
      });
    }
  });
}

/** Runs an instance, and counts turns of a timer meanwhile. */
async function turnsDuring(execution: Execution) {
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const ending = await execution.start('input');
  clearInterval(timer);
  execution.dispose();
  return { turns, ending };
}

describe('a guest on a machine that suspended its thread', () => {
  it('is not charged for the suspended time', async () => {
    const still = new Int32Array(new SharedArrayBuffer(4));
    // `Atomics.wait` stops the thread without CPU time, like a machine that suspends the thread.
    const log = () => void Atomics.wait(still, 0, 0, 5 * CPU_LIMIT_MS);
    const table = { ...host, runtime: { ...host.runtime, log } };
    const call = '(call $log (i32.const 1) (i32.const 16) (i32.const 2))';
    // The loop takes more than one refill of fuel, so the fuel check reads the guest's CPU time.
    const loop = '(loop (br_if 0 (i32.lt_u (local.tee 2 (i32.add (local.get 2) (i32.const 1))) (i32.const 100000))))';
    const guest = { imports: [LOG], locals: '(local i32)', run: `${call} ${loop} ${RETURN_42} (i32.const 0)` };
    const { ending, cpuMs } = await run(guest, { table });
    assert.equal(ending.kind, 'returned');
    assert.ok(cpuMs < CPU_LIMIT_MS, `${cpuMs} ms`);
  });
});

describe('the neighbours of a guest that never yields', () => {
  it('get turns while it computes', async () => {
    // The guest's 60 ms are about 60 slices; one blocking slice would leave almost no turns for the timer.
    const { turns, ending } = await turnsDuring(await instanceOf({ run: '(loop (br 0)) (i32.const 0)' }));
    assert.equal(ending.kind, 'trapped');
    assert.ok(turns >= 10, `${turns} turns`);
  });

  it('get turns while its calls are answered without a turn in between', async () => {
    const table = { ...host, queue: { ...host.queue, '[method]queue.synchronize': () => SETTLED } };
    const { turns, ending } = await turnsDuring(await instanceOf(ASKS_FOR_EVER, { table }));
    assert.equal(ending.kind === 'trapped' && ending.trap.code, 'cpu-limit');
    assert.ok(turns >= 10, `${turns} turns`);
  });

  it('see the guest end at its CPU limit when the platform charges it for the time of other threads', async () => {
    const program = await testProgram(await testArtifact(await watComponent(callbackGuest(ASKS_FOR_EVER)), 64));
    let calls = 0;
    const synchronize = () => {
      calls += 1;
      execution.charge(CPU_LIMIT_MS / 3);
      return SETTLED;
    };
    const table = { ...host, queue: { ...host.queue, '[method]queue.synchronize': synchronize } };
    const options = { slices: new SliceRunner(), cpuLimitMs: CPU_LIMIT_MS };
    const execution = instantiate(program, compileWorld(table), options);
    const ending = await execution.start('input');
    execution.dispose();
    assert.equal(ending.kind === 'trapped' && ending.trap.code, 'cpu-limit');
    assert.ok(calls <= 3 && execution.cpuMs >= CPU_LIMIT_MS, `${calls} calls, ${execution.cpuMs} ms`);
  });

  it('see the guest use up its credit and become a spinner (a guest without credit) while the device is busy', async () => {
    const slices = new SliceRunner(() => true);
    // The limit is far above the burst credit, so that a stall of the machine does not end the guest before it becomes
    // a spinner.
    const cpuLimitMs = DEFAULT_SLICE_POLICY.burstMs + 40;
    const spinning = run({ run: '(loop (br 0)) (i32.const 0)' }, { slices, cpuLimitMs });
    let mostSpinners = 0;
    const timer = setInterval(() => {
      mostSpinners = Math.max(mostSpinners, slices.spinners);
    }, 1);
    assert.equal((await spinning).ending.kind, 'trapped');
    clearInterval(timer);
    assert.equal(mostSpinners, 1);
  });
});
