import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { INSTANCE_OVERHEAD_BYTES } from '../pool/pool.ts';
import { FamilyMemory } from './family.ts';

const MIB = 2 ** 20;

test('the peak is the largest sum at any time, on random schedules of starts, growth and ends', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('enter', 'grow', 'leave'), fc.nat(20), fc.nat(64 * MIB)));
  const property = fc.property(steps, (schedule) => {
    const memory = new FamilyMemory();
    const running: { memoryBytes: number }[] = [];
    let peakBytes = 0;
    const updatePeak = () => {
      const bytes = running.reduce((sum, { memoryBytes }) => sum + memoryBytes + INSTANCE_OVERHEAD_BYTES, 0);
      peakBytes = Math.max(peakBytes, bytes);
    };
    const leave = (instance: { memoryBytes: number }) => {
      running.splice(running.indexOf(instance), 1);
      assert.equal(memory.leave(instance), instance.memoryBytes);
    };
    for (const [kind, index, bytes] of schedule) {
      const instance = running[index % Math.max(1, running.length)];
      if (kind === 'enter') {
        const entered = { memoryBytes: bytes };
        running.push(entered);
        memory.enter(entered);
      } else if (instance === undefined) continue;
      else if (kind === 'grow') instance.memoryBytes += bytes;
      else leave(instance);
      updatePeak();
    }
    for (const instance of [...running]) leave(instance);
    assert.equal(memory.peakMb, Math.ceil(peakBytes / MIB));
  });
  fc.assert(property, { seed: 20_261_121, numRuns: 200 });
});
