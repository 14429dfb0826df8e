import type { Backend, SequenceInput, SequenceOutput } from '../backends/backend.ts';
import type { Grant } from '../batcher/batcher.ts';
import type { DeviceCall } from './call.ts';

/** A call's part of a step. */
export interface StepPart {
  readonly call: DeviceCall;
  readonly grant: Grant;
  readonly sequence: SequenceInput;
}

/** A step on the device, from when it is handed over. */
export class DeviceStep {
  readonly parts: readonly StepPart[];
  /** True when the step takes tokens of the step before it, which was under way. */
  readonly isAhead: boolean;
  /** Time of the hand-over, and time when the host knew that the step had ended. */
  readonly submittedMs: number;
  endedMs = 0;
  /** One output per part; empty after a failure. */
  outputs: readonly SequenceOutput[] = [];
  /** Set when the step failed. */
  failure: { readonly error: unknown } | undefined;
  /** Resolves when the step has ended, even when it failed. */
  readonly ended: Promise<void>;

  constructor(backend: Backend, parts: readonly StepPart[], isAhead: boolean) {
    this.parts = parts;
    this.isAhead = isAhead;
    this.submittedMs = performance.now();
    this.ended = this.#compute(backend);
  }

  async #compute(backend: Backend): Promise<void> {
    try {
      const outputs = await backend.forward(this.parts.map(({ sequence }) => sequence));
      if (outputs.length !== this.parts.length) throw new Error('the backend returned another number of outputs');
      this.outputs = outputs;
    } catch (error) {
      this.failure = { error };
    }
    this.endedMs = performance.now();
  }
}
