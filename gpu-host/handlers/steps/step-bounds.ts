import type { StepEstimate } from '../../backends/backend.ts';
import { fault } from '../../memory/fault.ts';
import type { StepProfile } from '../../telemetry/step-profile.ts';

/**
 * Expected time of a step, ms, up to which the host cuts prompts. It is a small part of the minute for which a GPU host may compute without a
 * turn of its event loop before the supervisor ends it, so that an error of the estimate by a factor of ten is harmless.
 */
const CHUNK_MS = 5000;
/**
 * Expected time of a step, ms, up to which the host cuts a prompt that shares the device with other calls: these get a token in each step. It is at
 * least {@link BESIDE_STEPS} times the time of the smallest steps, so that a prompt advances on a device that takes long for any step.
 */
const BESIDE_MS = 250;
const BESIDE_STEPS = 2;
/** Expected time at the best rate, ms, up to which a call that cannot be cut is computed. */
const UNCUT_MS = 20_000;
/** Inputs of a call that cannot be cut for which no time is expected: a guest can hardly split so few, and no step is shorter by much. */
const LEAST_UNCUT = 16;

const MIB = 1024 * 1024;

/** What is left of one call: sizes from which the memory and the time of its next step follow. */
export interface RemainingCall {
  readonly inputs: number;
  /** Maximum keys that its next input sees besides the inputs themselves. */
  readonly context: number;
  /** Number of its last inputs for which the step computes logits. */
  readonly outputs: number;
}

/**
 * Bounds steps by their temporary memory, as the backend estimates it, and by their time, as earlier steps took it: parts of prompts by recent steps,
 * and refusals by the best rate. Pure: the profile changes as
 * steps are computed.
 */
export class StepBounds {
  readonly #estimate: StepEstimate | undefined;
  readonly #profile: StepProfile;

  /** @param estimate undefined for a backend that reserves the memory of steps at its start */
  constructor(estimate: StepEstimate | undefined, profile: StepProfile) {
    this.#estimate = estimate;
    this.#profile = profile;
  }

  /** Maximum inputs of a batch without context. */
  get batchInputs(): number {
    return Math.floor(this.#profile.work.sizeWithin(CHUNK_MS));
  }

  /** Number of the call's next inputs that one step computes if the call can be cut: all that fit, and at least one. */
  stepInputs(call: RemainingCall): number {
    return this.#inputsWithin(call, CHUNK_MS);
  }

  /** As {@link stepInputs}, of a call that shares the device with calls of other queues. */
  besideInputs(call: RemainingCall): number {
    const leastMs = this.#profile.work.points[0]?.ms ?? 0;
    return this.#inputsWithin(call, Math.min(CHUNK_MS, Math.max(BESIDE_MS, BESIDE_STEPS * leastMs)));
  }

  #inputsWithin(call: RemainingCall, maxMs: number): number {
    const work = this.#profile.work.sizeWithin(maxMs);
    if (this.#fits(call, call.inputs, work)) return call.inputs;
    // Memory and work grow with the inputs, so the largest number that fits lies between one that fits and one that does not.
    let [fitting, tooMany] = [1, call.inputs];
    while (tooMany - fitting > 1) {
      const middle = (fitting + tooMany) >> 1;
      if (this.#fits(call, middle, work)) fitting = middle;
      else tooMany = middle;
    }
    return fitting;
  }

  /**
   * Refuses a call that no step can compute. The best rate of all steps decides about its time, so that a host without cores, which
   * computes slowly, refuses no more than others.
   * @param isChunkable true when the call may be cut at any input
   * @throws CallFault `limit-exceeded`
   */
  check(call: RemainingCall, isChunkable: boolean): void {
    const { inputs, context, outputs } = call;
    // The last input of a call that is cut sees all others.
    const least = isChunkable ? { inputs: 1, context: context + inputs - 1, outputs: Math.min(1, outputs) } : call;
    const bytes = this.#estimate?.bytes(least) ?? 0;
    const maxBytes = this.#estimate?.maxBytes ?? 0;
    if (bytes > maxBytes) {
      throw fault(
        'limit-exceeded',
        `a step of ${least.inputs} inputs over ${least.context} slots needs ${Math.ceil(bytes / MIB)} MiB, and a step of this model may take ${Math.floor(maxBytes / MIB)} (step_memory_mb): ${isChunkable ? 'use a shorter context' : 'give the call out-pages and rising positions, so that it can be cut, or split it'}`,
      );
    }
    if (isChunkable || inputs <= LEAST_UNCUT || this.#work(call) <= this.#profile.work.possibleWithin(UNCUT_MS)) return;
    throw fault(
      'limit-exceeded',
      `${inputs} inputs over ${context} slots are expected to take more than ${UNCUT_MS / 1000} s in one step of this model: give the call out-pages and rising positions, so that it can be cut, or split it`,
    );
  }

  #fits({ inputs, context, outputs }: RemainingCall, count: number, work: number): boolean {
    const step = { inputs: count, context, outputs: Math.max(0, count - (inputs - outputs)) };
    const estimate = this.#estimate;
    if (estimate && estimate.bytes(step) > estimate.maxBytes) return false;
    return this.#work(step) <= work;
  }

  #work(step: RemainingCall): number {
    return this.#estimate?.work(step) ?? step.inputs;
  }
}
