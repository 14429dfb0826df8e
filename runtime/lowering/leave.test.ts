import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { testArtifact, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, type WatGuest, watComponent } from '../testing/wat.ts';
import { compileWorld, type HostTable } from './compile.ts';
import { instantiate } from './instance.ts';
import { SliceRunner } from './slices.ts';
import { GuestTrap } from './trap.ts';

const QUEUE = 'pie:inferlet/queue@0.1.0';
const NEW_QUEUE = [QUEUE, '[constructor]queue', '(param i32 i32) (result i32)'] as const;
const SYNCHRONIZE = [QUEUE, '[method]queue.synchronize', '(param i32) (result i32)'] as const;
const PRIORITY = [QUEUE, '[method]queue.set-priority', '(param i32 i32)'] as const;
const BLOCKING_READ = [QUEUE, '[future-read-0][method]queue.synchronize', '(param i32 i32) (result i32)'] as const;
const NEW_SET = ['$root', '[waitable-set-new]', '(result i32)'] as const;
const WAIT = ['$root', '[waitable-set-wait]', '(param i32 i32) (result i32)'] as const;
const YIELD = ['$root', '[thread-yield]', '(result i32)'] as const;
const CONTEXT = ['$root', '[context-get-0]', '(result i32)'] as const;
const NOW = ['pie:inferlet/runtime@0.1.0', 'now', '(result i64)'] as const;
const LOG = ['pie:inferlet/runtime@0.1.0', 'log', '(param i32 i32 i32)'] as const;

const CPU_LIMIT_MS = 60;
const { host } = recordingHost();

async function programOf(guest: WatGuest) {
  return testProgram(await testArtifact(await watComponent(callbackGuest(guest)), 64));
}

async function run(guest: WatGuest, table: HostTable = host, cpuLimitMs = CPU_LIMIT_MS) {
  const options = { slices: new SliceRunner(), cpuLimitMs };
  const execution = instantiate(await programOf(guest), compileWorld(table), options);
  const ending = await execution.start('input');
  execution.dispose();
  return { ending, cpuMs: execution.cpuMs };
}

/** An allocator that runs `code`, then returns an address. */
const realloc = (code: string): string =>
  `(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) ${code} (i32.const 1024))`;
/** Repeats a call forever and catches every exception. */
const forEver = (call: string): string => `(loop $l (block $b (try_table (catch_all $b) ${call})) (br $l))`;
const LOOP = '(loop (br 0))';

describe('while the host allocates in a guest,', () => {
  const calls: Readonly<Record<string, [WatGuest['imports'], string]>> = {
    'a yield': [[YIELD], '(drop (call $_thread_yield_))'],
    'a wait': [[WAIT], '(drop (call $_waitable_set_wait_ (i32.const 1) (i32.const 256)))'],
    'a new set': [[NEW_SET], '(drop (call $_waitable_set_new_))'],
    'a read': [
      [BLOCKING_READ],
      '(drop (call $_future_read_0__method_queue_synchronize (i32.const 1) (i32.const 256)))',
    ],
    'a call of the platform': [[LOG], '(call $log (i32.const 1) (i32.const 16) (i32.const 2))'],
    'a result': [[], RETURN_42],
  };
  for (const [name, [imports = [], call]] of Object.entries(calls)) {
    it(`${name} traps`, async () => {
      const { ending } = await run({ imports, realloc: realloc(call), run: '(i32.const 0)' });
      assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /allocator/);
    });
    it(`${name} traps even if the guest catches the exception and repeats the call`, async () => {
      const { ending } = await run({ imports, realloc: realloc(forEver(call)), run: '(i32.const 0)' });
      assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /allocator/);
    });
    it(`${name} traps even if the guest catches the exception and continues`, async () => {
      const caught = `(block $b (try_table (catch_all $b) ${call}))`;
      const { ending } = await run({ imports, realloc: realloc(caught), run: `${LOOP} (i32.const 0)` });
      assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /allocator/);
    });
  }

  it('the guest may read its task context', async () => {
    const { ending } = await run({
      imports: [CONTEXT],
      realloc: realloc('(drop (call $_context_get_0_))'),
      run: `${RETURN_42} (i32.const 0)`,
    });
    assert.equal(ending.kind, 'returned');
  });

  it('an exception in its allocator ends the guest', async () => {
    const again = '(drop (call $realloc (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))';
    const { ending } = await run({
      realloc: realloc(again).replace('(func', '(func $realloc'),
      run: `${LOOP} (i32.const 0)`,
    });
    assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /stack/);
  });
});

describe('while a guest is instantiated', () => {
  const start = (code: string): string => `(func $start ${code}) (start $start)`;
  it('a call of the host traps', async () => {
    const guest = {
      imports: [NEW_SET],
      extra: start('(drop (call $_waitable_set_new_))'),
      run: '(i32.const 0)',
    };
    const program = await programOf(guest);
    const options = { slices: new SliceRunner(), cpuLimitMs: CPU_LIMIT_MS };
    assert.throws(() => instantiate(program, compileWorld(host), options), /while it is instantiated/);
  });

  it('a call of a contract function makes the planning of the component fail, with the reason', async () => {
    const guest = { imports: [NOW], extra: start('(drop (call $now))'), run: '(i32.const 0)' };
    await assert.rejects(programOf(guest), /^GuestTrap: its start function calls the platform$/);
  });

  it('its start functions are charged to its CPU time', async () => {
    const program = await programOf({
      extra: `(global $n (mut i32) (i32.const 300000)) ${start('(loop (global.set $n (i32.sub (global.get $n) (i32.const 1))) (br_if 0 (global.get $n)))')}`,
      run: `${RETURN_42} (i32.const 0)`,
    });
    const execution = instantiate(program, compileWorld(host), { slices: new SliceRunner(), cpuLimitMs: 1000 });
    const started = execution.cpuMs;
    assert.ok(started > 0);
    assert.equal((await execution.start('')).kind, 'returned');
    assert.ok(execution.cpuMs >= started);
    execution.dispose();
  });

  it('its start functions are stopped after 500 ms while its component is planned', async () => {
    const endless = { extra: start(LOOP), run: '(i32.const 0)' };
    await assert.rejects(programOf(endless), /^GuestTrap: its start functions computed for 500 ms$/);
  });

  it('its start functions are stopped after 100 ms', async () => {
    // Planning runs start functions, so the plan comes from a guest whose loop ends at once: its word at 512 is zero. The spinning guest differs
    // only in this word.
    const loopOnWord = '(loop (br_if 0 (i32.load (i32.const 512))))';
    const honest = await programOf({ extra: start(loopOnWord), run: '(i32.const 0)' });
    const spinning = await watComponent(
      callbackGuest({ extra: `(data (i32.const 512) "1") ${start(loopOnWord)}`, run: '(i32.const 0)' }),
    );
    const artifact = await testArtifact(spinning, 64);
    const modules = new Map<string, WebAssembly.Module>();
    for (const name of artifact.coreModules) {
      modules.set(name, new WebAssembly.Module(await readFile(join(artifact.directory, name))));
    }
    const options = { slices: new SliceRunner(), cpuLimitMs: 2000 };
    const lowered = compileWorld(host);
    assert.throws(
      () => instantiate({ plan: honest.plan, modules }, lowered, options),
      /^GuestTrap: computed for 100 ms while it was started$/,
    );
  });
});

describe('a guest that waits', () => {
  const ready = Promise.resolve({ tag: 'ok' });
  const atOnce = { ...host, queue: { ...host.queue, '[method]queue.synchronize': () => ready } };
  const readNow =
    '(drop (call $_future_read_0__method_queue_synchronize (call $_method_queue_synchronize (call $_constructor_queue (i32.const 16) (i32.const 2))) (i32.const 256)))';

  for (const [name, imports, wait] of [
    ['for its turn', [YIELD], '(drop (call $_thread_yield_))'],
    ['for a future', [NEW_QUEUE, SYNCHRONIZE, BLOCKING_READ], readNow],
  ] as const) {
    it(`${name} and then computes forever is stopped at its CPU limit`, async () => {
      const { ending } = await run({ imports, run: `${wait} ${LOOP} (i32.const 0)` }, atOnce);
      assert.equal(ending.kind === 'trapped' && ending.trap.code, 'cpu-limit');
    });
    it(`${name} repeatedly, and catches every exception, is trapped`, async () => {
      const { ending } = await run({ imports, run: `${forEver(wait)} (i32.const 0)` }, atOnce);
      const { code, message } = ending.kind === 'trapped' ? ending.trap : {};
      // Each round makes a queue, so the guest may reach the bound on handles before its CPU limit.
      const isAtHandleBound = imports.length > 1 && message?.startsWith('more than 16384 handles');
      assert.ok(code === 'cpu-limit' || isAtHandleBound, `${code}: ${message}`);
    });
  }

  it('for a settled future is stopped at its CPU limit when it computes afterwards', async () => {
    const settled = `(local.set 2 (call $_method_queue_synchronize (call $_constructor_queue (i32.const 16) (i32.const 2))))
      (drop (call $_thread_yield_))
      (drop (call $_future_read_0__method_queue_synchronize (local.get 2) (i32.const 256)))`;
    const imports = [NEW_QUEUE, SYNCHRONIZE, BLOCKING_READ, YIELD];
    const { ending } = await run({ imports, locals: '(local i32)', run: `${settled} ${LOOP} (i32.const 0)` }, atOnce);
    assert.equal(ending.kind === 'trapped' && ending.trap.code, 'cpu-limit');
  });

  it('cannot catch a kill during its wait', async () => {
    const program = await programOf({
      imports: [NEW_QUEUE, SYNCHRONIZE, BLOCKING_READ],
      run: `(block $b (try_table (catch_all $b) ${readNow})) (i32.store8 (i32.const 512) (i32.const 1)) ${LOOP} (i32.const 0)`,
    });
    const asked = Promise.withResolvers<void>();
    const asking = () => {
      asked.resolve();
      return new Promise(() => undefined);
    };
    const never = {
      ...host,
      queue: { ...host.queue, '[method]queue.synchronize': asking },
    };
    const execution = instantiate(program, compileWorld(never), {
      slices: new SliceRunner(),
      cpuLimitMs: 60_000,
    });
    const ending = execution.start('');
    await asked.promise;
    // By the next turn, the guest is suspended.
    await new Promise((resolve) => setImmediate(resolve));
    execution.kill(new GuestTrap('cancelled', 'by its client'));
    const ended = await ending;
    assert.equal(ended.kind === 'trapped' && ended.trap.code, 'cancelled');
    // A guest that had caught the kill would continue in this turn, and store 1 at address 512.
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(execution.guest.u8[512], 0);
    assert.ok(execution.cpuMs < 30_000);
    execution.dispose();
  });
});

describe('a guest that has nearly exhausted its stack', () => {
  it('leaves the host a stack of full depth', async () => {
    const depths: number[] = [];
    const descend = (depth: number): number => {
      try {
        return descend(depth + 1);
      } catch {
        return depth;
      }
    };
    const table = {
      ...host,
      queue: { ...host.queue, '[method]queue.set-priority': () => void depths.push(descend(0)) },
    };
    // Calls the host at every 16th level of a recursion that overflows the stack.
    const { ending } = await run(
      {
        imports: [NEW_QUEUE, PRIORITY],
        extra: `(global $queue (mut i32) (i32.const 0)) (global $depth (mut i32) (i32.const 0))
          (func $down
            (global.set $depth (i32.add (global.get $depth) (i32.const 1)))
            (if (i32.eqz (i32.and (global.get $depth) (i32.const 0xf)))
              (then (call $_method_queue_set_priority (global.get $queue) (i32.const 1))))
            (call $down) (global.set $depth (i32.const 1)))`,
        run: `(global.set $queue (call $_constructor_queue (i32.const 16) (i32.const 2)))
          (block $b (try_table (catch_all $b) (call $down))) ${RETURN_42} (i32.const 0)`,
      },
      table,
      10_000,
    );
    // V8 does not let a guest catch the overflow of its own stack.
    assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /stack/);
    assert.ok(depths.length > 100, `${depths.length} calls`);
    // Frames that V8 has not compiled yet are larger, so the depths differ.
    assert.ok(Math.min(...depths) > 5000, depths.join());
  });
});
