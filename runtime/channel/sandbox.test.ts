import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, it } from 'node:test';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import { localTable } from '../guest/local.ts';
import type { HostFunction, HostTable } from '../lowering/compile.ts';
import { withRelease } from '../lowering/future-release.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callNumber } from './calls.ts';
import { MAX_MESSAGE_BYTES } from './limits.ts';
import { RuntimeEnd } from './runtime-end.ts';
import { SandboxEnd } from './sandbox-end.ts';
import { SharedThread } from './shared-thread.ts';
import { bothEnds, openInvocation } from './testing/run-remote.ts';

const EXECUTION = { slices: new SliceRunner(), cpuLimitMs: 60_000 };
const turns = async (count: number) => {
  for (let i = 0; i < count; i++) await new Promise(setImmediate);
};

const PIECE_BYTES = 65_536;
/** Pieces that may wait to be written. The bound is 1 MiB. Each piece costs a little more than its 64 KiB, so the sixteenth is refused. */
const WAITING_PIECES = 15;

/** One guest for all tests; the input names its task. Building a component for each task would take longer than the tests. */
const GUEST = `
  import { getVariable } from 'pie:inferlet/environment@0.1.0';
  import { isCancelled } from 'pie:inferlet/runtime@0.1.0';
  import { flush, send } from 'pie:inferlet/session@0.1.0';
  import { exists, set } from 'pie:inferlet/store@0.1.0';
  const fill = () => {
    const piece = { tag: 'bytes', val: new Uint8Array(${PIECE_BYTES}) };
    for (let sent = 0; ; sent++) {
      try { send(piece); } catch (error) { return sent + ' ' + error.payload.tag; }
    }
  };
  const acts = {
    async spins() {
      const first = getVariable('A');
      if (getVariable('B') === 'spin') for (;;);
      return first;
    },
    async fills() {
      const first = fill();
      await exists('full').read();
      const flushed = await flush().read();
      return [first, flushed.tag, fill()].join();
    },
    async 'looks for its cancellation'() {
      const before = isCancelled();
      await exists('ready').read();
      return [before, isCancelled()].join();
    },
    async computes() { await exists('ready').read(); for (;;); },
    async waits() { await exists('ready').read(); await exists('never').read(); },
    async 'is suspended'() { await exists('ready').read(); getVariable('never'); },
    async 'reads and drops'() {
      const read = exists('0');
      await read.read();
      read.drop();
      const settled = exists('1');
      await exists('2').read();
      settled.drop();
      exists('3').drop();
      globalThis.kept = exists('4');
      await exists('5').read();
      return 'done';
    },
    async 'sends too much'() {
      const outcome = await set('key', new Uint8Array(${MAX_MESSAGE_BYTES}), undefined).read();
      return outcome.tag + ' ' + outcome.val.tag;
    },
  };
  export const run = (act) => acts[act]();`;

/** Connects both ends for the guest and a host with replaced functions. */
async function guestWith(overrides: HostTable = {}, memoryPages?: number) {
  const program = await testProgram(await testArtifact(await testComponent(GUEST), memoryPages));
  const { host } = recordingHost();
  const merged = Object.fromEntries(
    Object.entries(host).map(([name, table]) => [name, { ...table, ...overrides[name] }]),
  );
  return bothEnds(merged, { program, execution: EXECUTION, local: localTable(() => undefined) });
}

const ok = (val: unknown) => ({ tag: 'ok', val });

describe('a guest in a sandbox', { timeout: 300_000 }, () => {
  it('runs timers between the starts of many guests', async () => {
    const [mine, theirs] = duplexPair();
    const count = 40;
    const allOpened = Promise.withResolvers<void>();
    /** For each guest, the turn of the event loop in which it began. */
    const turnOf: number[] = [];
    /** Turns since the first guest began. */
    let turn = 0;
    const countTurn = () => {
      turn++;
      if (turnOf.length < count) setImmediate(countTurn);
    };
    const sandbox = new SandboxEnd(theirs, {
      opened: () => {
        // Keeps the thread for as long as a guest's first slice does.
        const until = performance.now() + 2;
        while (performance.now() < until);
        turnOf.push(turn);
        if (turnOf.length === 1) setImmediate(countTurn);
        if (turnOf.length === count) allOpened.resolve();
      },
      control: () => undefined,
      lost: () => undefined,
    });
    const runtime = new RuntimeEnd(mine, {
      host: recordingHost().host,
      thread: new SharedThread(),
      control: () => undefined,
      lost: () => undefined,
    });
    for (let i = 0; i < count; i++) openInvocation(runtime, {});
    await allOpened.promise;
    // If one turn began many guests, timers would wait for all of them.
    assert.ok(new Set(turnOf).size > count / 2, `guests began in the turns ${turnOf.join(', ')}`);
    sandbox.close();
    runtime.close();
  });

  it('is charged no CPU time while it waits for a synchronous answer, and is charged again afterwards', async () => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<string>();
    const get = ((_context: unknown, name: string) => {
      if (name === 'A') return 'x';
      asked.resolve();
      return answer.promise;
    }) as HostFunction;
    const { runtime, sandbox } = await guestWith({ environment: { 'get-variable': get } });
    const { ended } = openInvocation(runtime, { input: 'spins' });
    await asked.promise;
    // After these turns the guest is suspended, and the count of its CPU time has stopped.
    await turns(5);
    const [execution] = sandbox.executions;
    const before = execution!.cpuMs;
    // If the guest were charged while it waits, its CPU time would grow now.
    const until = performance.now() + 20;
    while (performance.now() < until);
    await turns(5);
    assert.equal(execution!.cpuMs, before);
    execution!.options = { ...EXECUTION, cpuLimitMs: 100 };
    answer.resolve('spin');
    const how = await ended;
    assert.ok(how.tag === 'trapped' && how.val.code === 'cpu-limit', JSON.stringify(how));
    runtime.close();
  });

  it('sends events without a round trip up to a bound, and as many again after a flush', async () => {
    const written: ((outcome: boolean) => void)[] = [];
    let bytes = 0;
    const flushes: (() => void)[] = [];
    const full = Promise.withResolvers<void>();
    const { runtime } = await guestWith({
      session: {
        send: ((_context: unknown, { val }: { val: Uint8Array }) => {
          bytes += val.length;
          return ok(undefined);
        }) as HostFunction,
        flush: (() => new Promise((resolve) => flushes.push(() => resolve(ok(undefined))))) as HostFunction,
      },
      store: {
        exists: (() => {
          full.resolve();
          return Promise.resolve(ok(true));
        }) as HostFunction,
      },
    });
    const flushed = () => new Promise<boolean>((resolve) => written.push(resolve));
    const { ended } = openInvocation(runtime, { input: 'fills' }, { flushed });
    await full.promise;
    assert.equal(bytes, WAITING_PIECES * PIECE_BYTES);
    while (flushes.length === 0) await turns(1);
    flushes[0]!();
    const how = await ended;
    const refused = `${WAITING_PIECES} limit-exceeded`;
    assert.deepEqual(how, { tag: 'success', val: `${refused},ok,${refused}` });
    assert.equal(bytes, 2 * WAITING_PIECES * PIECE_BYTES);
    runtime.close();
  });

  it('sees its cancellation and continues', async () => {
    const ready = Promise.withResolvers<void>();
    const stopped = Promise.withResolvers<unknown>();
    const exists = (() => {
      ready.resolve();
      return stopped.promise;
    }) as HostFunction;
    const { runtime } = await guestWith({ store: { exists } });
    const { ended, guest } = openInvocation(runtime, { input: 'looks for its cancellation' });
    await ready.promise;
    guest.stop(handlerError('cancelled', 'by the test'));
    stopped.resolve(ok(true));
    assert.deepEqual(await ended, { tag: 'success', val: 'false,true' });
    runtime.close();
  });

  for (const what of ['computes', 'waits', 'is suspended']) {
    /** Key of the last call of `exists` before the guest computes or waits. A guest that is to be suspended calls `getVariable` instead. */
    const lastKey = what === 'computes' ? 'ready' : 'never';
    /** A host that answers only `ready`, and a function that waits until the guest computes, waits or is suspended. */
    const hostFor = () => {
      const called = Promise.withResolvers<void>();
      const exists = ((_context: unknown, key: string) => {
        if (key === lastKey) called.resolve();
        return key === 'ready' ? Promise.resolve(ok(true)) : new Promise(() => undefined);
      }) as HostFunction;
      const get = (() => {
        called.resolve();
        return new Promise(() => undefined);
      }) as HostFunction;
      const begun = async ({ executions }: Awaited<ReturnType<typeof guestWith>>['sandbox']) => {
        await called.promise;
        const [execution] = executions;
        const before = execution!.cpuMs;
        await turns(5);
        while (what === 'computes' && execution!.cpuMs < before + 5) await turns(1);
        return execution!;
      };
      return { begun, table: { store: { exists }, environment: { 'get-variable': get } } };
    };

    it(`is removed on both sides when the runtime closes its invocation while it ${what}`, async () => {
      const { begun, table } = hostFor();
      const { runtime, sandbox } = await guestWith(table);
      const { guest } = openInvocation(runtime, { input: what });
      await begun(sandbox);
      guest.close({ code: 'deadline-exceeded', message: 'too late' });
      while (sandbox.executions.size > 0 || runtime.lanes > 0) await turns(1);
      assert.deepEqual([guest.held, runtime.guests, sandbox.end.invocations], [0, 0, 0]);
      // The channel stays open.
      const { ended } = openInvocation(runtime, { input: what });
      runtime.close();
      assert.equal((await ended).tag, 'sandbox-lost');
    });

    it(`is removed on both sides when the channel breaks while it ${what}`, async () => {
      const { begun, table } = hostFor();
      const { runtime, sandbox, stream, lost } = await guestWith(table);
      const { guest, ended } = openInvocation(runtime, { input: what });
      const execution = await begun(sandbox);
      stream.destroy();
      assert.equal((await lost).code, 'lost');
      assert.equal((await ended).tag, 'sandbox-lost');
      while (sandbox.executions.size > 0) await turns(1);
      const { dead, handlerErrors } = execution.guest;
      assert.match(dead?.message ?? '', /^runtime-lost: /);
      if (what === 'waits') assert.match(handlerErrors.get('unavailable') ?? '', /^runtime-lost: /);
      assert.deepEqual([guest.held, runtime.guests, sandbox.end.invocations], [0, 0, 0]);
    });
  }

  it('reports to the host, once each, the futures that it has read or dropped', async () => {
    const reports: string[] = [];
    const allReported = Promise.withResolvers<void>();
    const exists = ((_context: unknown, key: string) =>
      withRelease(key === '3' ? new Promise(() => undefined) : Promise.resolve(ok(true)), (isRead) => {
        reports.push(`${key}: ${isRead ? 'read' : 'dropped'}`);
        if (reports.length === 5) allReported.resolve();
      })) as HostFunction;
    const { runtime } = await guestWith({ store: { exists } });
    const { ended } = openInvocation(runtime, { input: 'reads and drops' });
    await allReported.promise;
    assert.deepEqual(await ended, { tag: 'success', val: 'done' });
    // The guest keeps the future of key 4, and does not read it.
    assert.deepEqual(reports.sort(), ['0: read', '1: dropped', '2: read', '3: dropped', '5: read']);
    runtime.close();
  });

  it('sends its result although the queue of unsent calls has no room for it', async () => {
    const [mine, theirs] = duplexPair();
    const { host } = recordingHost();
    const set = (() => Promise.resolve(ok(1n))) as HostFunction;
    const large = MAX_MESSAGE_BYTES - 4096;
    const sandbox = new SandboxEnd(theirs, {
      opened: (invocation) => {
        const call = (of: string, name: string, ...args: unknown[]) =>
          invocation.call(callNumber(of, name) ?? -1, args);
        const queue = call('queue', '[constructor]queue', 'm');
        void call('store', 'set', 'key', new Uint8Array(large), undefined);
        // Calls without a result cannot be refused.
        for (let depth = 0; depth < 100; depth++) call('queue', '[method]queue.set-depth', queue, depth);
        const used = { cpuMs: 0, memoryBytes: 0n, calls: 102n };
        const success = { tag: 'success', val: 'x'.repeat(large) } as const;
        invocation.end({ ending: success, used, handlerErrors: [], stderr: '', firstCallMs: undefined });
      },
      control: () => undefined,
      lost: () => undefined,
    });
    const runtime = new RuntimeEnd(mine, {
      host: { ...host, store: { ...host.store, set } },
      thread: new SharedThread(),
      control: () => undefined,
      lost: () => undefined,
    });
    const how = await openInvocation(runtime, {}).ended;
    assert.deepEqual([how.tag, how.tag === 'success' && how.val.length], ['success', large]);
    sandbox.close();
    runtime.close();
  });

  it('reports the number of log lines for which its queue had no room', async () => {
    const [mine, theirs] = duplexPair();
    const { host } = recordingHost();
    const lines: string[] = [];
    const log = ((_context: unknown, level: string, line: string) => {
      lines.push(`${level} ${line}`);
    }) as HostFunction;
    const set = (() => Promise.resolve(ok(1n))) as HostFunction;
    const sandbox = new SandboxEnd(theirs, {
      opened: async (invocation) => {
        const call = (of: string, name: string, ...args: unknown[]) =>
          invocation.call(callNumber(of, name) ?? -1, args);
        // Leaves less space in the queue than a log line of 2,000 characters needs.
        const stored = call('store', 'set', 'key', new Uint8Array(MAX_MESSAGE_BYTES - 1000), undefined);
        for (const text of ['x', 'y']) call('runtime', 'log', 'info', text.repeat(2000));
        await stored;
        call('runtime', 'log', 'info', 'after');
        const used = { cpuMs: 0, memoryBytes: 0n, calls: 4n };
        const success = { tag: 'success', val: 'done' } as const;
        invocation.end({ ending: success, used, handlerErrors: [], stderr: '', firstCallMs: undefined });
      },
      control: () => undefined,
      lost: () => undefined,
    });
    const runtime = new RuntimeEnd(mine, {
      host: { ...host, store: { ...host.store, set }, runtime: { ...host.runtime, log } },
      thread: new SharedThread(),
      control: () => undefined,
      lost: () => undefined,
    });
    assert.deepEqual(await openInvocation(runtime, {}).ended, { tag: 'success', val: 'done' });
    // The report of the first dropped line still fits into the queue, so the second line has its own report.
    const report = 'warn 1 log lines were dropped: too many were waiting to be written';
    assert.deepEqual(lines, [report, report, 'info after']);
    sandbox.close();
    runtime.close();
  });

  it('gets an error from a call that is too large for one message', async () => {
    const { runtime } = await guestWith({}, 4096);
    const { ended } = openInvocation(runtime, { input: 'sends too much' });
    assert.deepEqual(await ended, { tag: 'success', val: 'err limit-exceeded' });
    runtime.close();
  });
});
