import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { testArtifact, testProgram } from '../testing/components.ts';
import { recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, type WatGuest, watComponent } from '../testing/wat.ts';
import { compileWorld, type HostTable } from './compile.ts';
import { Fuel, GO_ON, TRAP } from './fuel.ts';
import { MAX_LIFTED_BYTES, MAX_LIFTED_ITEMS } from './guest.ts';
import { instantiate } from './instance.ts';
import { SliceRunner } from './slices.ts';

const TOKENIZE = 'pie:inferlet/tokenize@0.1.0';
const CHAT = [TOKENIZE, 'chat-template', '(param i32 i32 i32 i32 i32 i32)'] as const;
const SEND = ['pie:inferlet/session@0.1.0', 'send', '(param i32 i32 i32 i32)'] as const;
const MESSAGE_BYTES = 16;
const MIB = 1 << 20;

const { host } = recordingHost();

async function run(guest: WatGuest, table: HostTable, cpuLimitMs = 10_000, slices = new SliceRunner()) {
  const program = await testProgram(await testArtifact(await watComponent(callbackGuest(guest)), 1024));
  const execution = instantiate(program, compileWorld(table), { slices, cpuLimitMs });
  const ending = await execution.start('input');
  execution.dispose();
  return { ending, cpuMs: execution.cpuMs };
}

/** Renders a chat of `count` messages that all share the same `bytes` bytes as their content. */
async function chat(count: number, bytes: number) {
  // Stays -1 if the host function is not called.
  let characters = -1;
  const template = (_context: unknown, _model: string, messages: readonly { readonly content: string }[]) => {
    characters = messages.reduce((sum, { content }) => sum + content.length, 0);
    return { tag: 'ok', val: '' };
  };
  const guest: WatGuest = {
    imports: [CHAT],
    pages: 640,
    locals: '(local i32 i32)',
    // The records of the messages start at 33 MiB. They all point at one text, zeros from 64 KiB on.
    run: `(local.set 2 (i32.const ${count})) (local.set 3 (i32.const ${33 * MIB}))
      (if (local.get 2) (then (loop $l
        (i32.store offset=8 (local.get 3) (i32.const 65536)) (i32.store offset=12 (local.get 3) (i32.const ${bytes}))
        (local.set 3 (i32.add (local.get 3) (i32.const ${MESSAGE_BYTES})))
        (br_if $l (local.tee 2 (i32.sub (local.get 2) (i32.const 1)))))))
      (call $chat_template (i32.const 16) (i32.const 2) (i32.const ${33 * MIB}) (i32.const ${count}) (i32.const 0) (i32.const 256))
      ${RETURN_42} (i32.const 0)`,
  };
  const table = { ...host, tokenize: { ...host.tokenize, 'chat-template': template } };
  const { ending } = await run(guest, table as HostTable);
  return { ending, characters };
}

describe('the arguments of one call', () => {
  it('may be large within the budget: one message of 31 MiB', async () => {
    const { ending, characters } = await chat(1, 31 * MIB);
    assert.equal(ending.kind, 'returned');
    assert.equal(characters, 31 * MIB);
  });
  for (const [name, count, bytes] of [
    ['200 messages that point at one region of 31 MiB', 200, 31 * MIB],
    ['3 messages whose sum is over the budget', 3, MAX_LIFTED_BYTES / 2 - MIB],
    ['more messages than a call may have', MAX_LIFTED_ITEMS + 1, 0],
  ] as const) {
    it(`may not exceed the budget: ${name}`, async () => {
      const { ending, characters } = await chat(count, bytes);
      assert.match(ending.kind === 'trapped' ? ending.trap.message : '', /one call hands over more than 64 MiB/);
      assert.equal(characters, -1);
    });
  }
});

describe('slow host calls', () => {
  const LOOP = `(loop $l (call $send (i32.const 1) (i32.const 16) (i32.const 2) (i32.const 256)) (br $l)) (i32.const 0)`;
  const CALL_MS = 5;
  const slowHost = () => {
    let calls = 0;
    const send = () => {
      calls += 1;
      const from = process.threadCpuUsage().user;
      while (process.threadCpuUsage().user - from < CALL_MS * 1000);
      return { tag: 'ok' };
    };
    return { table: { ...host, session: { ...host.session, send } } as HostTable, calls: () => calls };
  };

  it('are charged to the guest, which is stopped at its CPU limit', async () => {
    const { table, calls } = slowHost();
    const limitMs = 60;
    const { ending } = await run({ imports: [SEND], run: LOOP }, table, limitMs);
    assert.equal(ending.kind === 'trapped' && ending.trap.code, 'cpu-limit');
    assert.ok(calls() <= limitMs / CALL_MS + 1, `${calls()} calls`);
  });

  it('are each followed by a turn of the event loop', async () => {
    const { table, calls } = slowHost();
    /** Call counts that were seen at turns of the event loop. */
    const seen = new Set<number>();
    let ended = false;
    const turn = () => {
      seen.add(calls());
      if (!ended) setImmediate(turn);
    };
    turn();
    // Long enough for many calls, even when the machine gives this process little time.
    await run({ imports: [SEND], run: LOOP }, table, 400);
    ended = true;
    assert.ok(calls() > 1, `${calls()} calls`);
    for (let call = 1; call < calls(); call++) assert.ok(seen.has(call), `no turn after call ${call} of ${calls()}`);
  });
});

describe('the fuel of an instance', () => {
  const fuelExports = () => ({
    pie_fuel: new WebAssembly.Global({ value: 'i32', mutable: true }, 0),
    pie_yield: Reflect.construct(WebAssembly.Table, [{ element: 'anyfunc', initial: 1 }]) as WebAssembly.Table,
  });
  const source = { ask: () => GO_ON, wait: () => Promise.resolve(), resumed: () => TRAP };
  const fuelOfFullTank = () => {
    const fuel = new Fuel(source);
    const only = fuelExports();
    fuel.adopt(only);
    return Number(only.pie_fuel.value);
  };

  it('is one tank that all modules of the instance share', () => {
    const full = fuelOfFullTank();
    const used = fc.array(fc.tuple(fc.nat(1000), fc.nat(2 * full)), { maxLength: 40, size: 'max' });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 100 }), used, (count, burns) => {
        const fuel = new Fuel(source);
        const modules = Array.from({ length: count }, fuelExports);
        for (const exports of modules) fuel.adopt(exports);
        const gauges = modules.map(({ pie_fuel }) => pie_fuel as unknown as { value: number });
        // Modules use up fuel in random order. A module without fuel gets a refill.
        for (const [which, amount] of [[0, 0], ...burns] as const) {
          const gauge = gauges[which % count]!;
          gauge.value -= amount;
          if (gauge.value > 0) continue;
          fuel.refill();
          const sum = gauges.reduce((total, { value }) => total + Math.max(0, value), 0);
          assert.ok(sum <= full, `${sum} of ${full}`);
          // The other modules keep little, so the empty one gets at least half of its even share.
          assert.ok(gauge.value >= Math.floor(full / 2 / count), `${gauge.value} for ${count} modules`);
        }
      }),
      { seed: 31, numRuns: 200 },
    );
  });

  it('is empty at once when drained', () => {
    const fuel = new Fuel(source);
    const modules = [fuelExports(), fuelExports()];
    for (const exports of modules) fuel.adopt(exports);
    fuel.drain();
    assert.deepEqual(
      modules.map(({ pie_fuel }) => pie_fuel.value),
      [0, 0],
    );
  });
});
