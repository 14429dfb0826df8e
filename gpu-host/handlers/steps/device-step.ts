import type { Backend, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { checkInputs, checkSequence } from '../../backends/check.ts';
import type { Grant } from '../../batcher/batcher.ts';
import { fault } from '../../memory/fault.ts';
import type { DeviceCall } from '../calls/call.ts';
import { RunCall } from '../calls/run.ts';
import type { RowUnderWay } from './run-ahead.ts';

/** One sequence of a step. */
export interface StepRow {
  readonly sequence: SequenceInput;
}

/** A call's part of a step. */
export interface StepPart extends StepRow {
  readonly call: DeviceCall;
  readonly grant: Grant;
}

/** A step that the device has computed. `parts` and `outputs` are those of its calls; some `rows` of a guessed step may have no call. */
export type ComputedStep = Pick<DeviceStep, 'parts' | 'outputs' | 'rows' | 'isAhead' | 'submittedMs' | 'endedMs'>;

/** A step from its hand-over to the device on. */
export class DeviceStep<P extends StepRow = StepPart> {
  readonly parts: readonly P[];
  /** True when the step takes tokens that the step before it picks on the device. */
  readonly isAhead: boolean;
  /** Time of the hand-over. */
  readonly submittedMs: number;
  /** Time when the host knew that the step had ended; 0 until then. */
  endedMs = 0;
  /** One output per part; empty until the step has ended, and after a failure. */
  outputs: readonly SequenceOutput[] = [];
  /** Set when the step failed. */
  failure: { readonly error: unknown } | undefined;
  /** Resolves when the step has ended, even when it failed. */
  readonly ended: Promise<void>;

  constructor(backend: Backend, parts: readonly P[], isAhead: boolean) {
    this.parts = parts;
    this.isAhead = isAhead;
    this.submittedMs = performance.now();
    this.ended = this.#compute(backend);
  }

  get rows(): readonly StepRow[] {
    return this.parts;
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

/** Classifies a part of a step for `rowsAhead`. */
export function rowOf({ call }: StepPart): RowUnderWay {
  if (call.state === 'done') return 'ended';
  return call instanceof RunCall && !call.hostQueue.isStopped ? call : 'other';
}

/** The runs of a step that have not ended since its hand-over. */
export function openRuns({ parts }: DeviceStep): RunCall[] {
  return parts.flatMap(({ call }) => (call instanceof RunCall && call.state !== 'done' ? [call] : []));
}

/** The call's next `tokens` inputs, as they go to the device. @throws CallFault, or CallHeld when there is no memory */
export function sequenceOf(call: DeviceCall, tokens: number, backend: Backend): SequenceInput {
  // Making room for an earlier call may have ended this call's inferlet.
  if (call.hostQueue.space.closed) throw fault('cancelled', 'the inferlet has ended');
  call.hostQueue.checkGoesOn();
  const { adapter } = call;
  const prepared = call.prepare(tokens);
  return checkedSequence(adapter ? { ...prepared, adapter } : prepared, backend);
}

/** The sequence, if the device can take it. @throws InvalidInput */
export function checkedSequence(sequence: SequenceInput, backend: Backend): SequenceInput {
  if (backend.checksSlots) checkInputs(backend.config, sequence);
  else checkSequence(backend.config, backend.pageSize * backend.pageCount, sequence);
  return sequence;
}
