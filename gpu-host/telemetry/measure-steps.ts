import { readFileSync } from 'node:fs';
import type { Backend, SequenceInput } from '../backends/backend.ts';
import { StepProfile } from './step-profile.ts';

/** Inputs of the measured prefills. */
const PREFILLS = [4, 16, 64, 256];
/** Sequences of the measured decode steps. */
const DECODES = [4, 16, 64];
/** Steps of each size. The first one may allocate memory for its size, so the profile forgets its time after the second. */
const STEPS = 2;
/** A series ends with the first step that takes more than `BEYOND` times as long as a step of one input, and more than `LEAST_MS`. */
const BEYOND = 3;
const LEAST_MS = 10;
/**
 * After this time, ms, no further step is measured: a slow device must serve soon, and its later steps are measured as it serves. The two steps of
 * the previous size fit into this time, and a step is four times as large as those at most, so it takes at most twice this time.
 */
const BUDGET_MS = 2000;

export interface StepLimits {
  /** Maximum inputs of a step. */
  readonly maxTokens: number;
  /** Maximum sequences of a step. */
  readonly maxSequences: number;
}

/**
 * Measures steps of a causal model before it serves, so that its first workflows find its efficient size. The steps have no context and
 * write no keys and values.
 *
 * @param clock by which the measuring ends, ms
 * @param waitedMs time that this thread has waited for a core, which does not count as a step's time: the machine may be busy at the start
 */
export async function measuredSteps(
  backend: Backend,
  limits: StepLimits,
  clock: () => number = () => performance.now(),
  waitedMs: () => number = () => 0,
): Promise<StepProfile> {
  const profile = new StepProfile();
  const untilMs = clock() + BUDGET_MS;
  const measure = async (sequences: number, inputs: number): Promise<number> => {
    const batch = new Array<SequenceInput>(sequences).fill(sequence(inputs));
    let ms = 0;
    for (let step = 0; step < STEPS && clock() < untilMs; step++) {
      const [startMs, waitedBeforeMs] = [clock(), waitedMs()];
      await backend.forward(batch);
      ms = clock() - startMs - (waitedMs() - waitedBeforeMs);
      profile.note(sequences, sequences * inputs, ms);
    }
    return ms;
  };
  const enoughMs = Math.max(LEAST_MS, BEYOND * (await measure(1, 1)));
  const maxInputs = Math.min(limits.maxTokens, backend.config.contextLength);
  for (const inputs of PREFILLS) if (inputs > maxInputs || (await measure(1, inputs)) > enoughMs) break;
  for (const sequences of DECODES)
    if (sequences > limits.maxSequences || (await measure(sequences, 1)) > enoughMs) break;
  return profile;
}

/** Time that this process's main thread has waited for a core since its start, ms; 0 where the system does not tell. */
export function waitedForCoreMs(): number {
  try {
    const [, waitedNs] = readFileSync(`/proc/${process.pid}/task/${process.pid}/schedstat`, 'utf8').split(' ');
    return Number(waitedNs ?? 0) / 1e6;
  } catch {
    return 0;
  }
}

/** A sequence that asks for the most probable token after its last input. */
function sequence(inputs: number): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(inputs) },
    positions: Uint32Array.from({ length: inputs }, (_, i) => i),
    context: new Uint32Array(),
    mask: 'causal',
    writes: new Uint32Array(),
    output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
  };
}
