import { ahead } from './ahead.ts';
import { inputs } from './inputs.ts';
import { outputs } from './outputs.ts';
import { slots } from './slots.ts';
import type { TestedBackend } from './topic.ts';

/** Defines the tests that check a backend against itself; they are the same for all backends. parity.test.ts compares backends with the reference. */
export function conformance(tested: TestedBackend): void {
  for (const topic of [inputs, outputs, slots, ahead]) topic(tested);
}
