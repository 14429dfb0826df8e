import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import type { StepEstimate } from '../../backends/backend.ts';
import { faultOf, makeMemory } from '../../memory/testing/memory.ts';
import { StepProfile } from '../../telemetry/step-profile.ts';
import { must, NONE, Oracle, range, startTestHost } from '../../testing/host.ts';
import { ids, PROMPT, Workbench } from '../../testing/workbench.ts';
import { watchBackend, wrapBackend } from '../../testing/wrapped-backend.ts';
import { ForwardPlan } from '../calls/plan.ts';
import { type RemainingCall, StepBounds } from './step-bounds.ts';

const MIB = 1024 * 1024;

/** An estimate with these bytes for each input, score and output, and with work that counts contexts. */
function estimateOf(maxBytes: number, ofInput: number, ofScore: number, ofOutput: number, ofColumn = 0): StepEstimate {
  return {
    maxBytes,
    bytes: ({ inputs, context, outputs }) =>
      inputs * ofInput + inputs * (context + inputs) * ofScore + outputs * ofOutput,
    work: ({ inputs, context }) => inputs * (1 + ofColumn * (context + inputs)),
  };
}

/** Steps of these sizes, each with its time. */
function profileOf(...steps: readonly (readonly [size: number, ms: number])[]): StepProfile {
  const profile = new StepProfile();
  for (const [size, ms] of steps) profile.note(1, size, ms);
  return profile;
}

describe('the bounds of a step', () => {
  test('the largest part that fits both bounds is computed, and at least one input', () => {
    let [cut, cutMore] = [0, 0];
    for (let seed = 1; seed <= 500; seed++) {
      const below = seeded(seed);
      const estimate = estimateOf(1 + below(1 << 20), below(2000), below(8), below(20_000), below(10) / 1000);
      const profile = profileOf([1, 1 + below(3000)], [8, 1 + below(9000)]);
      const bounds = new StepBounds(estimate, profile);
      const inputs = 1 + below(200);
      const call: RemainingCall = { inputs, context: below(500), outputs: below(inputs + 1) };
      const largestWithin = (ms: number): number => {
        const fits = (count: number): boolean => {
          const step = { inputs: count, context: call.context, outputs: Math.max(0, count - (inputs - call.outputs)) };
          return estimate.bytes(step) <= estimate.maxBytes && estimate.work(step) <= profile.work.sizeWithin(ms);
        };
        return Array.from({ length: inputs }, (_, i) => inputs - i).find(fits) ?? 1;
      };
      const largest = largestWithin(5000);
      assert.equal(bounds.stepInputs(call), largest, `seed ${seed}`);
      // Beside calls of others: 250 ms, or twice the smallest step.
      const beside = largestWithin(Math.min(5000, Math.max(250, 2 * (profile.work.points[0]?.ms ?? 0))));
      assert.equal(bounds.besideInputs(call), beside, `seed ${seed}`);
      if (largest < inputs) cut++;
      if (beside < largest) cutMore++;
    }
    assert.ok(cut > 100 && cut < 490, `${cut} calls were cut`);
    assert.ok(cutMore > 100, `${cutMore} calls were cut more beside others`);
  });

  test('a call of which not one input fits is refused with its figure, also one that could be cut', () => {
    const bounds = new StepBounds(estimateOf(10 * MIB, 0, 1024, 0), new StepProfile());
    // The last input of a cut call sees all others.
    bounds.check({ inputs: 240, context: 10_000, outputs: 1 }, true);
    const { tag, val } = faultOf(() => bounds.check({ inputs: 241, context: 10_000, outputs: 1 }, true)).error;
    assert.equal(tag, 'limit-exceeded');
    assert.match(
      val,
      /1 inputs over 10240 slots needs 11 MiB, .* may take 10 \(step_memory_mb\): use a shorter context/,
    );
    assert.match(
      faultOf(() => bounds.check({ inputs: 2, context: 9000, outputs: 1 }, false)).error.val,
      /2 inputs over 9000 slots needs 18 MiB, .*give the call out-pages/,
    );
    // A backend that reserves its memory refuses none for memory.
    new StepBounds(undefined, new StepProfile()).check({ inputs: 1e6, context: 1e6, outputs: 1 }, false);
  });

  test('a call that cannot be cut is refused when its step is expected to take too long', () => {
    const bounds = new StepBounds(undefined, profileOf([1, 2800], [4, 3000], [64, 10_000]));
    bounds.check({ inputs: 128, context: 0, outputs: 1 }, false);
    bounds.check({ inputs: 100_000, context: 0, outputs: 1 }, true);
    const { tag, val } = faultOf(() => bounds.check({ inputs: 129, context: 0, outputs: 1 }, false)).error;
    assert.deepEqual(
      [tag, /129 inputs over 0 slots are expected to take more than 20 s/.test(val)],
      ['limit-exceeded', true],
    );
    new StepBounds(undefined, profileOf([1, 60_000])).check({ inputs: 16, context: 0, outputs: 1 }, false);
  });

  test('steps that waited for cores refuse no call that the device can compute, whatever their order; prompts are cut shorter', () => {
    let [refused, shorter] = [0, 0];
    for (let seed = 1; seed <= 300; seed++) {
      const below = seeded(seed);
      const [fixedMs, eachMs] = [below(500), (1 + below(2000)) / 10];
      const profile = new StepProfile();
      const bounds = new StepBounds(undefined, profile);
      const accepts = (inputs: number) => {
        try {
          bounds.check({ inputs, context: 0, outputs: 1 }, false);
          return true;
        } catch {
          return false;
        }
      };
      /** Notes a step that took `slowdown` times as long as one with all cores. */
      const step = (inputs: number, slowdown: number) =>
        profile.note(1, inputs, slowdown * (fixedMs + eachMs * inputs));
      for (const inputs of [1, 1, 4, 4, 16, 16]) step(inputs, 1);
      const calls = Array.from({ length: 50 }, () => 1 + below(1 << (1 + below(14))));
      const acceptedBefore = calls.filter(accepts);
      const partBefore = bounds.stepInputs({ inputs: 1 << 14, context: 0, outputs: 1 });
      for (let i = 0; i < 60; i++) step(1 + below(1 << (1 + below(10))), 1 + below(40));
      // A step of the size of a call with all cores takes no longer than its size at the rate of 16 inputs.
      for (const inputs of calls) {
        if ((inputs * (fixedMs + 16 * eachMs)) / 16 <= 20_000) assert.ok(accepts(inputs), `seed ${seed}: ${inputs}`);
        else if (!accepts(inputs)) refused++;
      }
      for (const inputs of acceptedBefore) assert.ok(accepts(inputs), `seed ${seed}: ${inputs} was accepted before`);
      if (bounds.stepInputs({ inputs: 1 << 14, context: 0, outputs: 1 }) < partBefore) shorter++;
    }
    assert.ok(refused > 1000 && shorter > 30, `${refused} calls refused, ${shorter} prompts cut shorter`);
  });

  test('a plan that is refused brings no page back and keeps nothing', () => {
    const kit = makeMemory({ pages: 4 });
    const space = kit.open();
    space.allocate(1, 2);
    const pages = ids(1, 2);
    const request = {
      inPages: pages,
      outPages: pages,
      mask: undefined,
      rows: 1,
      logits: 1,
      keepsParts: false,
      adapter: undefined,
    };
    const bounds = new StepBounds(estimateOf(MIB, 0, MIB / 8, 0), new StepProfile());
    const plan = (inputs: number) => () =>
      new ForwardPlan(
        space,
        { ...request, positions: range(0, inputs), tokens: undefined },
        { contextLength: 96, heads: 4 },
        bounds,
      );
    assert.equal(faultOf(plan(9)).error.tag, 'limit-exceeded');
    assert.deepEqual(plan(8)().remaining(1), { inputs: 8, context: 0, outputs: 1 });
  });
});

test('a host cuts prompts so that each step fits its memory, and refuses a context of which no step fits', async () => {
  // An input takes 4 bytes for each key that it sees.
  const steps = estimateOf(128, 0, 4, 0);
  const watched: ReturnType<typeof watchBackend>[] = [];
  await using host = await startTestHost({
    wrap: (backend) => {
      const record = watchBackend(backend);
      watched.push(record);
      return wrapBackend(record.backend, { steps });
    },
  });
  const bench = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'guest');
  const pages = bench.pages(5);
  must(await bench.fill(pages, PROMPT, 0));
  const parts = watched
    .flatMap(({ batches }) => batches.flat())
    .map(({ context, positions }) => [context.length, positions.length]);
  assert.equal(
    parts.reduce((sum, [, inputs = 0]) => sum + inputs, 0),
    PROMPT.length,
  );
  for (const [context = 0, inputs = 0] of parts) assert.ok(inputs === 1 || 4 * inputs * (context + inputs) <= 128);
  assert.ok(parts.length > 2 && parts.length < PROMPT.length, `${parts}`);
  const found = await bench.probe(pages, 7, PROMPT.length);
  const [expected = 0] = await bench.oracle.greedy([...PROMPT, 7], 1);
  assert.equal(found.tokens[0], expected);
  // 32 keys fit a step of one input: 31 of the context, and the input's own.
  must(
    await bench.fill(
      pages,
      Array.from({ length: 20 }, () => 4),
      PROMPT.length,
    ),
  );
  must(await bench.inferlet.ask(bench.queue, samplingRequest(31, pages)));
  const refused = await bench.inferlet.ask(bench.queue, samplingRequest(32, pages));
  assert.ok(refused.tag === 'err' && refused.val.tag === 'limit-exceeded');
  assert.match(refused.val.val, /1 inputs over 32 slots/);
  await bench.inferlet.close();
});

const samplingRequest = (position: number, pages: Uint32Array) =>
  ({
    op: 'step',
    request: {
      tokens: ids(4),
      positions: ids(position),
      inPages: pages,
      outPages: position === 31 ? pages : NONE,
      mask: undefined,
      rows: 0,
      output: { tag: 'none' },
    },
  }) as const;
