import type { SequenceInput, TopRequest } from '../../backends/backend.ts';
import { emptySlot, type PageSpace } from '../../memory/space.ts';
import type { StepRequest } from '../../protocol/calls.ts';
import { drawsOf } from '../calls/sampler.ts';
import type { HostQueue } from '../calls/space.ts';
import { StepCall } from '../calls/step.ts';
import type { SparePages } from './spare-pages.ts';
import { continuesStep, isPlainStep } from './step-trail.ts';

/** A step that its inferlet will probably ask for. Its one input is the token that the step before it picks. */
export class NextStep {
  readonly hostQueue: HostQueue;
  readonly sequence: SequenceInput;
  /** True when the step writes to a page that was set aside (spared) for the queue's next allocation. */
  readonly #isOnSpare: boolean;
  #previousStep: StepCall | NextStep | undefined;
  #call: StepCall | undefined;
  #prepared: SequenceInput | undefined;
  /** The queue's call that has come and asks for another step than this one. */
  #refusedCall: StepCall | undefined;

  private constructor(previousStep: StepCall | NextStep, isOnSpare: boolean, sequence: SequenceInput) {
    this.hostQueue = previousStep.hostQueue;
    this.#isOnSpare = isOnSpare;
    this.sequence = sequence;
    this.#previousStep = previousStep;
  }

  /**
   * The step after `previousStep`. The device computes `previousStep` as `sequenceUnderWay`, and gives its token in row `row` of the results.
   * Undefined when `previousStep` is no plain step, when the context is full, or when the slot of the next key is not certain. It is certain on a
   * page that only the inferlet holds, or, when the pages that `previousStep` names are full, on the page that was spared for the queue.
   */
  static after(
    previousStep: StepCall | NextStep,
    sequenceUnderWay: SequenceInput,
    row: number,
    contextLength: number,
    spares: SparePages,
  ): NextStep | undefined {
    const { request, hostQueue } = previousStep;
    const [position] = sequenceUnderWay.positions;
    const [writtenSlot] = sequenceUnderWay.writes;
    if (!request || !isPlainStep(request) || position === undefined || writtenSlot === undefined) return undefined;
    if (sequenceUnderWay.mask !== 'causal' || sequenceUnderWay.output.kind !== 'top' || position + 1 >= contextLength)
      return undefined;
    const { pages } = hostQueue.space;
    const unfilledSlot = emptySlot(pages, request.outPages);
    const slot = unfilledSlot ?? (areFull(pages, request.outPages) ? spares.slot(hostQueue) : undefined);
    if (slot === undefined) return undefined;
    // Copy the context: the next call may be prepared in the same memory, and is later compared with what the device was given.
    const context = new Uint32Array(sequenceUnderWay.context.length + 1);
    context.set(sequenceUnderWay.context);
    context[sequenceUnderWay.context.length] = writtenSlot;
    return new NextStep(previousStep, unfilledSlot === undefined, {
      inputs: { kind: 'picked', rows: Uint32Array.of(row) },
      positions: Uint32Array.of(position + 1),
      context,
      mask: 'causal',
      writes: Uint32Array.of(slot),
      output: outputAt(sequenceUnderWay.output, request, position + 1),
    });
  }

  /** The request of the call that took the step; undefined until then. */
  get request(): StepRequest | undefined {
    return this.#call?.request;
  }

  /** The token that the step gave to its call; undefined until then. */
  get token(): number | undefined {
    return this.#call?.token;
  }

  /** How the call that took the step was prepared; undefined until then. */
  get prepared(): SequenceInput | undefined {
    return this.#prepared;
  }

  /** True when a call of the queue has come, whatever it asks for. */
  get hasCall(): boolean {
    return this.hostQueue.batchQueue.front !== undefined;
  }

  /** The call that asks for this step, if it has come and is ready to go. */
  find(): StepCall | undefined {
    const { front } = this.hostQueue.batchQueue;
    const { token, request } = this.#previousStep ?? {};
    if (front === this.#refusedCall) return undefined;
    if (!(front instanceof StepCall) || front.state !== 'ready' || !request || token === undefined) return undefined;
    return continuesStep(request, token, front.request) && this.#fits(front.request) ? front : undefined;
  }

  /** True when preparing a call with these pages changes no memory: the device may be busy with the step after this one. */
  #fits({ inPages, outPages }: StepRequest): boolean {
    const { pages } = this.hostQueue.space;
    return emptySlot(pages, outPages) === this.sequence.writes[0] && areResident(pages, inPages);
  }

  /** True when the call's sequence, as it would go to the device now, is the one that was computed. */
  matches({ positions, context, mask, writes }: SequenceInput): boolean {
    const { sequence } = this;
    return (
      mask === 'causal' &&
      isSame(positions, sequence.positions) &&
      isSame(writes, sequence.writes) &&
      isSame(context, sequence.context)
    );
  }

  /** Gives the step to the call, which was prepared as `prepared` and takes the result. */
  take(call: StepCall, prepared: SequenceInput): void {
    this.#call = call;
    this.#prepared = prepared;
    // A long chain of guesses must not stay in memory.
    this.#previousStep = undefined;
  }

  /** Remembers a call that asks for another step. `find` skips it from then on, because preparing it again would take long. */
  refuse(call: StepCall): void {
    this.#refusedCall = call;
  }

  /** Records whether the guess was worth its time: it was if its call came and no other call had to wait for that call. */
  recordGuess(isRight: boolean): void {
    this.hostQueue.trail.noteGuess(isRight);
    if (!isRight && this.#isOnSpare) this.hostQueue.takesSpares = false;
  }
}

/** True for a ready call that asks for a plain step and that can be prepared while the device is busy, because preparing it changes no memory. */
export function mayJoin({ state, blockers, request, hostQueue: { space } }: StepCall): boolean {
  const { closed, pages } = space;
  if (state !== 'ready' || blockers > 0 || closed || pages.contender.isAway || pages.isFetching) return false;
  return (
    isPlainStep(request) && emptySlot(pages, request.outPages) !== undefined && areResident(pages, request.inPages)
  );
}

function areResident(pages: PageSpace, addresses: Uint32Array): boolean {
  return addresses.every((address) => (pages.pageAt(address)?.frame ?? -1) >= 0);
}

/** True when none of the pages has an empty slot: the next step fills a page that is not allocated yet. */
function areFull(pages: PageSpace, addresses: Uint32Array): boolean {
  return addresses.every((address) => pages.pageAt(address)?.filled === pages.pool.fullBits);
}

/** The output request of the same sampler at another position. */
function outputAt(output: TopRequest, { output: requestedOutput }: StepRequest, position: number): TopRequest {
  const draws = requestedOutput.tag === 'sample' ? drawsOf(requestedOutput.val, [position]) : undefined;
  const { topK, tokensOnly = false } = output;
  return { kind: 'top', rows: 1, topK, tokensOnly, ...(draws ? { draws } : {}) };
}

function isSame(a: Uint32Array, b: Uint32Array): boolean {
  return Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength));
}
