import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { before, describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { type TestProgram, testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { type Recording, recordingHost } from '../testing/recording-host.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { compileWorld, type HostFunction, type HostTable } from './compile.ts';
import type { Execution } from './execution.ts';
import { instantiate } from './instance.ts';
import type { Snapshot } from './instance-state.ts';
import { SliceRunner } from './slices.ts';
import { GuestTrap } from './trap.ts';

const OPTIONS = { slices: new SliceRunner(), cpuLimitMs: 60_000 };

/** A host that passes each call to the recording host that is the guest's context. */
const delegating: HostTable = Object.fromEntries(
  Object.entries(recordingHost().host).map(([name, table]) => [
    name,
    Object.fromEntries(
      Object.keys(table).map((fn) => [
        fn,
        ((context: Recording, ...args: unknown[]) => {
          const answer = context.host[name]?.[fn] as ((...all: unknown[]) => unknown) | undefined;
          return answer?.(context, ...args);
        }) as HostFunction,
      ]),
    ),
  ]),
);
const world = compileWorld(delegating);

const make = (program: TestProgram): Execution => instantiate(program, world, OPTIONS);

function snapshotOf(execution: Execution): Snapshot {
  const snapshot = execution.state.snapshot();
  assert.ok(snapshot, 'the instance can be restored');
  return snapshot;
}

/**
 * Observable results of one run, except the drops of resources and the order of errors: drops depend on the garbage collector, the order on the
 * clock.
 */
async function transcript(execution: Execution, input: string, recording = recordingHost()) {
  execution.guest.context = recording;
  const ending = await execution.start(input);
  const { stderr, handlerErrors } = execution.guest;
  const lines = recording.lines.filter((line) => !line.includes(' [resource-drop]'));
  return { ending, lines, stderr, errors: [...handlerErrors.keys()].sort() };
}

/** Leaves its input everywhere a JavaScript program can leave data, and returns what it finds there. */
const HOARDER = `
  let calls = 0;
  const seen = [];
  const found = () => JSON.stringify([calls, seen, globalThis.left ?? null, Object.prototype.left ?? null, Array.prototype.at.left ?? null,
    Math.max.left ?? null, Symbol.for('left').description, [].left ?? null, new Map().left ?? null, JSON.left ?? null]);
  export async function run(input) {
    const before = found();
    calls++;
    seen.push(input);
    globalThis.left = input;
    Object.prototype.left = input;
    Array.prototype.at.left = input;
    Math.max.left = input;
    JSON.left = input;
    Map.prototype.left = input;
    globalThis.kept = new Uint8Array(5000).fill(77);
    Promise.resolve().then(() => { globalThis.later = input; });
    return before;
  }`;

/** Returns while a call of the platform is still unanswered. */
const WAITS_FOR_NOTHING = `
  import { sleep } from 'pie:inferlet/runtime@0.1.0';
  export async function run() { globalThis.kept = sleep(1); return 'done'; }`;

const GROWS = `export async function run(input) { globalThis.kept = new Uint8Array(8_000_000); return input; }`;

describe('the renewal of an instance', () => {
  let everything: TestProgram;
  let hoarder: TestProgram;
  const program = async (source: string) => testProgram(await testArtifact(await testComponent(source)));
  before(async () => {
    everything = await program(await readFile(new URL('./fixtures/everything.js', import.meta.url), 'utf8'));
    hoarder = await program(HOARDER);
  });

  it('makes the instance run like a new one, whatever it ran before', async () => {
    const fresh = await transcript(make(everything), '4');
    assert.ok(fresh.lines.length > 50);
    const used = await usedInstance();
    assert.deepEqual(await transcript(used, '4'), fresh);
  });

  /** An instance that ran twice and was renewed each time. */
  async function usedInstance(): Promise<Execution> {
    for (let attempt = 0; attempt < 10; attempt++) {
      const used = make(everything);
      if ((await runAndRenew(used, '2')) && (await runAndRenew(used, '3'))) return used;
    }
    assert.fail('the memory of ten instances in a row grew');
  }

  /** Returns false when the run grew the memory, as some runs do: the guest's peak varies by up to a page with the time at which answers arrive. */
  async function runAndRenew(execution: Execution, input: string): Promise<boolean> {
    const bytes = execution.state.memoryBytes;
    await transcript(execution, input);
    await eventually(() => execution.guest.isQuiet, 'the host has answered the calls that the guest did not await');
    const grew = execution.state.memoryBytes > bytes;
    assert.equal(execution.renew(snapshotOf(make(everything)), OPTIONS), !grew);
    return !grew;
  }

  it('restores the bytes and globals of a new instance, and leaves no data of the last run', async () => {
    const used = make(hoarder);
    const snapshot = snapshotOf(used);
    const asMade = snapshotOf(make(hoarder));
    assert.deepEqual(snapshot, asMade, 'two new instances are equal');
    const first = await transcript(used, 'a secret');
    assert.notDeepEqual(snapshotOf(used), asMade);
    assert.equal(used.renew(snapshot, OPTIONS), true);
    assert.deepEqual(snapshotOf(used), asMade);
    assert.equal(used.cpuMs, 0);
    assert.equal(used.guest.handleCount, 0);
    assert.deepEqual(await transcript(used, 'another'), first);
  });

  it('is refused after a kill, after growth of the memory, and while a host call is unanswered', async () => {
    const killed = make(hoarder);
    const snapshot = snapshotOf(killed);
    await transcript(killed, 'x');
    killed.kill(new GuestTrap('terminated', 'has ended'));
    assert.equal(killed.renew(snapshot, OPTIONS), false);

    const grown = make(await program(GROWS));
    const small = snapshotOf(grown);
    assert.equal((await transcript(grown, 'x')).ending.kind, 'returned');
    assert.equal(grown.renew(small, OPTIONS), false);

    const waiting = make(await program(WAITS_FOR_NOTHING));
    const quiet = snapshotOf(waiting);
    const recording = recordingHost();
    const slept = Promise.withResolvers<void>();
    const host = { ...recording.host, runtime: { ...recording.host.runtime, sleep: () => slept.promise } };
    assert.equal((await transcript(waiting, 'x', { ...recording, host })).ending.kind, 'returned');
    assert.equal(waiting.renew(quiet, OPTIONS), false);
    slept.resolve();
    await eventually(() => waiting.renew(quiet, OPTIONS), 'the host has answered');
  });

  it('works after a run with an empty input that grew the memory by zero pages', async () => {
    const guest = callbackGuest({ run: `(drop (memory.grow (i32.const 0))) ${RETURN_42} (i32.const 0)` });
    const execution = make(await testProgram(await testArtifact(await watComponent(guest))));
    const snapshot = snapshotOf(execution);
    for (let i = 0; i < 2; i++) {
      assert.deepEqual(await execution.start(''), { kind: 'returned', ok: true, text: '42' });
      assert.equal(execution.renew(snapshot, OPTIONS), true);
    }
  });

  it('is not available for a program that changes its tables', async () => {
    const guest = callbackGuest({
      run: `(table.set $own (i32.const 0) (ref.null func)) ${RETURN_42} (i32.const 0)`,
      extra: '(table $own 1 funcref)',
    });
    const changing = await testProgram(await testArtifact(await watComponent(guest)));
    assert.equal(make(changing).state.snapshot(), null);
  });
});
