import type { Backend, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { checkInputs, checkSequence } from '../../backends/check.ts';
import type { Batch, Grant } from '../../batcher/batcher.ts';
import type { BatchCall } from '../../batcher/call.ts';
import { dependencyFault, fault } from '../../memory/fault.ts';
import type { Contender } from '../../memory/space.ts';
import type { DeviceCall, HostCall } from '../calls/call.ts';
import { DistributionCall, type ForwardCall, type ProjectCall } from '../calls/forward.ts';
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

/**
 * The order in which calls get memory: that of their families (an invocation and its children), so that no call is preempted after it was prepared.
 * The calls of one family stay in the order of the batch, because later calls build on earlier ones.
 *
 * A call may wait for pages that a call of a later family computes. In this order, the later family then has the place of the waiting one.
 * Otherwise a third family between them could take the memory that the pages need. When memory runs short, only the later family's
 * true place counts. If the family then gets too little, its call is held, and the waiting call computes the pages itself.
 *
 * @param precedes true when the first family gets memory before the second
 */
export function inOrderOfMemory(
  grants: readonly Grant[],
  awaitedBy: Batch['awaitedBy'],
  precedes: (a: Contender, b: Contender) => boolean,
): readonly Grant[] {
  const isInOrder = (grant: Grant, i: number): boolean => {
    const previous = grants[i - 1];
    return !previous || !precedes(familyOf(grant.call), familyOf(previous.call));
  };
  if (awaitedBy.size === 0 && grants.every(isInOrder)) return grants;
  const places = new Map<Contender, Contender>();
  for (const { call } of grants) {
    const family = familyOf(call);
    let place = places.get(family) ?? family;
    for (const waiter of awaitedBy.get(call) ?? []) if (precedes(familyOf(waiter), place)) place = familyOf(waiter);
    places.set(family, place);
  }
  return grants.toSorted((a, b) => {
    const [one, other] = [familyOf(a.call), familyOf(b.call)];
    if (one === other) return 0;
    const [place, otherPlace] = [places.get(one) ?? one, places.get(other) ?? other];
    if (place === otherPlace) return precedes(one, other) ? -1 : 1;
    return precedes(place, otherPlace) ? -1 : 1;
  });
}

const familyOf = (call: BatchCall): Contender => (call as HostCall).hostQueue.space.pages.contender;

/** The distribution calls among `projections` whose states `forward` makes. */
export function ridersOf(forward: ForwardCall, projections: readonly ProjectCall[]): DistributionCall[] {
  const { space } = forward.hostQueue;
  const riders: DistributionCall[] = [];
  for (const call of projections) {
    if (call instanceof DistributionCall && call.hostQueue.space === space && forward.makes(call.embed))
      riders.push(call);
  }
  return riders;
}

/** Checks the calls of the same batch that the granted call needs. @throws CallFault with the cause of the first one that failed */
export function checkBefore({ after }: Grant): void {
  const failed = after?.find((call) => failureOf(call) !== undefined);
  if (failed) throw dependencyFault(failureOf(failed) as NonNullable<HostCall['failure']>);
}

function failureOf(call: BatchCall): HostCall['failure'] {
  return (call as HostCall).failure;
}
