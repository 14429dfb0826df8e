import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Inferlet } from '../host/session/inferlet.ts';
import { SandboxedRun } from './sandboxed-run.ts';

test('a run ends, and gives its instance back, when the tables of its model cannot be sent', async () => {
  const released: number[] = [];
  let goneCalls = 0;
  const sandbox = {
    heardAtMs: 0,
    vocabulary: () => {
      throw new Error('no memory is left');
    },
    release: (instance: number) => released.push(instance),
  } as unknown as ConstructorParameters<typeof SandboxedRun>[2];
  const run = new SandboxedRun({ instance: 7, invocation: 'a' }, 1000, sandbox, () => (goneCalls += 1));
  const inferlet = { description: { models: new Map([['tiny', { tokenizer: {} }]]) } } as unknown as Inferlet;
  const { ending } = await run.start(inferlet, { input: '', cpuLimitMs: 1000 });
  assert.deepEqual(ending, {
    kind: 'lost',
    cause: 'The token tables of a model could not be sent: no memory is left.',
    figures: {},
  });
  run.dispose();
  assert.deepEqual([released, goneCalls], [[7], 1]);
});

test('a run counts no more of a reported usage than is possible, and usage never decreases', () => {
  let guestsMs = 0;
  const sandboxStub = {
    heardAtMs: 0,
    guestComputed: (ms: number) => {
      guestsMs += ms;
    },
  } as ConstructorParameters<typeof SandboxedRun>[2];
  const run = new SandboxedRun({ instance: 1, invocation: 'a' }, 1000, sandboxStub, () =>
    assert.fail('the run goes on'),
  );
  const countedAfter = (cpuMs: number, memoryBytes: number, calls: number) => {
    run.usedNow({ cpuMs, memoryBytes, calls });
    return [run.cpuMs, run.memoryBytes, run.calls];
  };
  assert.deepEqual(countedAfter(3, 100, 7), [3, 100, 7]);
  assert.deepEqual(countedAfter(2, 50, 6), [3, 100, 7]);
  assert.deepEqual(countedAfter(3, 0, 1e300), [3, 100, 1e12]);
  for (const cpuMs of [Number.NaN, Number.NEGATIVE_INFINITY, -1])
    assert.deepEqual(countedAfter(cpuMs, 0, 0), [3, 100, 1e12]);
  assert.equal(guestsMs, 3, 'the sandbox gets each millisecond once');
  for (const cpuMs of [Number.POSITIVE_INFINITY, 1e300, 60_000_000]) {
    const [counted = Number.NaN, memory] = countedAfter(cpuMs, 1e12, 8);
    assert.ok(counted > 3 && counted < 60_000, `${counted} ms are possible`);
    assert.equal(memory, 1000);
  }
});
