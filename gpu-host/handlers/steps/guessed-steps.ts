import type { SequenceInput, SequenceOutput, TopRequest } from '../../backends/backend.ts';
import { DEFAULT_GRACE, graceMs } from '../../batcher/adaptive.ts';
import type { Batcher } from '../../batcher/batcher.ts';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import type { Page } from '../../memory/pool.ts';
import { emptySlot, type PageSpace } from '../../memory/space.ts';
import type { StepRequest } from '../../protocol/calls.ts';
import type { HostQueue, ModelContext } from '../calls/call.ts';
import { drawsOf } from '../calls/checks.ts';
import { MemoryCall } from '../calls/memory-call.ts';
import { StepCall } from '../calls/step.ts';
import type { Instants } from '../engine/instants.ts';
import type { StepStats } from '../engine/stats.ts';
import type { Pause } from '../sharing/thread-share.ts';
import { type ComputedStep, DeviceStep, type StepPart, sequenceOf } from './device-step.ts';
import { continuesStep, isPlainStep } from './step-trail.ts';

/** Maximum milliseconds for which the results of a guessed step wait for calls that have not come, while no other call can go. */
const MAX_LATE_MS = 20;
/** Maximum guessed steps that follow each other. Until the last one has ended, memory does not change, except that spared pages are allocated. */
const MAX_GUESSED_STEPS = 256;

/** The parts of the engine that the guesses use. */
export interface GuessParts {
  /** The ready calls, and the limits of a batch. `adopt` takes a ready call into the batch under way. */
  readonly batcher: Pick<Batcher, 'ready' | 'limits' | 'adopt'>;
  /** Pages set aside for the next allocations of queues. */
  readonly spares: SparePages;
  readonly instants: Pick<Instants, 'allocateSpared'>;
  readonly pause: Pick<Pause, 'until'>;
  readonly stats: Pick<StepStats, 'vainGuesses'>;
}

/** The engine, as the guesses see it. */
export interface GuessEngine {
  /**
   * True when nothing but the calls of the batch wants the device or the memory, and no other call is ready or expected soon. With `own`, up to
   * `own` calls may be ready, and expected calls do not count.
   */
  isAlone(own?: number): boolean;
  /** Notes that a step has ended and one of `rows` inputs has begun. Sends the results, and reads the frames that have arrived. */
  stepped(rows: number): Promise<void>;
  /** Sends the results, and resolves when a call has come, or after `ms`. */
  linger(ms: number): Promise<void>;
  /** Keeps pages where they are until the batch ends. */
  pin(pages: PageSpace): void;
  /** Charges the step, and returns the time at which the device began it. */
  chargeGuess(step: GuessedStep): number;
  /** Hands out the results of a step. */
  acceptGuess(step: ComputedStep, startedMs: number): void;
  /** Hands out the result of a call that came after its guessed step had ended. */
  acceptLate(part: StepPart, output: SequenceOutput): void;
  /** Computes prepared calls in a step of their own. */
  compute(parts: readonly StepPart[]): Promise<void>;
}

/** A guessed step. Its rows are guesses (`NextStep`), and calls that were ready when it was handed over and joined it (`StepPart`). */
export type GuessedStep = DeviceStep<NextStep | StepPart>;

/** The guesses of a step whose calls have not come, each with the index of its row among the step's results. */
type AwaitedRows = Map<NextStep, number>;

/** A call that has taken a row of a guessed step, or joined it. */
interface TakenRow {
  readonly guess: NextStep | undefined;
  readonly row: number;
  readonly part: StepPart;
}

/**
 * Guesses the next steps of inferlets that read every token before they ask for the next one. An inferlet that has asked for some steps in a row,
 * each with the token of the step before, will probably ask for another such step. The device computes it while the inferlet still reads the token.
 * When the call comes, the host prepares it as always. The call takes the guessed result only if its own input would be exactly the guessed one: same
 * slots, position and sampler, and the token that was picked. A wrong guess is charged to its inferlet, and changes no result: the key and value that
 * it wrote lie in a slot that counts as empty. When all calls for a guessed step have come, the host hands over the step after it.
 *
 * The host guesses a step only if each inferlet of the step before will probably ask for another one. Otherwise an inferlet's call without a row in
 * the guessed step would have to wait for the end of that step. Other ready calls join the guessed step if they all ask for one token and have their
 * pages in place; if not, the guesses end.
 */
export class GuessedSteps {
  readonly #context: ModelContext;
  readonly #parts: GuessParts;
  readonly #engine: GuessEngine;

  constructor(context: ModelContext, parts: GuessParts, engine: GuessEngine) {
    this.#context = context;
    this.#parts = parts;
    this.#engine = engine;
  }

  /** The guesses that follow the step under way; empty when one of its inferlets may ask for something else, or another call wants the device. */
  rowsAfter({ parts, failure }: DeviceStep): readonly NextStep[] {
    if (this.#context.backend.ahead !== true || failure || !this.#engine.isAlone()) return [];
    if (!parts.every(({ call }) => call instanceof StepCall && call.hostQueue.trail.isSteady)) return [];
    return this.#rows(parts.map(({ call, sequence }) => ({ before: call as StepCall, under: sequence })));
  }

  /**
   * Hands a guessed step to the device, with the ready calls that join it, unless another call wants the device. Later
   * calls wait until that step has ended.
   * @param ownReady as for `isAlone`
   */
  handOver(rows: readonly NextStep[], ownReady?: number): GuessedStep | undefined {
    if (rows.length === 0) return undefined;
    const joiningCalls = this.#joinableCalls(rows.map(queueOf), ownReady);
    const parts = joiningCalls && this.#join(joiningCalls, rows);
    return parts && new DeviceStep(this.#context.backend, [...rows, ...parts], true);
  }

  /**
   * The ready calls that are to join the next step of these queues: all ready calls of other queues, or an empty list
   * when no other call wants the device. Undefined when one of the calls cannot join, or when they are too many: then
   * the next batch is chosen anew.
   */
  #joinableCalls(queues: readonly HostQueue[], ownReady?: number): readonly StepCall[] | undefined {
    if (this.#engine.isAlone(ownReady)) return [];
    const { ready, limits } = this.#parts.batcher;
    const orders = new Set(queues.map(({ batchQueue: order }) => order));
    const joiningCalls: StepCall[] = [];
    for (const call of ready) {
      if (orders.has(call.queue)) {
        // Without `ownReady`, the queue's step is still under way. A queue that has sent another call already does not go on as guessed.
        if (ownReady === undefined) return undefined;
        continue;
      }
      if (!(call instanceof StepCall) || !mayJoin(call)) return undefined;
      joiningCalls.push(call);
    }
    const maxRows = Math.min(limits.maxCalls, limits.maxTokens);
    if (joiningCalls.length === 0 || queues.length + joiningCalls.length > maxRows) return undefined;
    return this.#engine.isAlone(ready.length) ? joiningCalls : undefined;
  }

  /** Takes all the calls into a step of these rows. Takes none and returns undefined when one of them cannot go as it is. */
  #join(calls: readonly StepCall[], rows: readonly NextStep[]): readonly StepPart[] | undefined {
    const slots = new Set(rows.map(({ sequence }) => sequence.writes[0]));
    const parts: StepPart[] = [];
    for (const call of calls) {
      try {
        parts.push({ call, grant: { call, tokens: 1 }, sequence: sequenceOf(call, 1, this.#context.backend) });
      } catch {
        // The next batch prepares the call again, and tells its inferlet what is wrong.
        break;
      }
    }
    // Two rows of a step must not write the same slot.
    for (const { sequence } of parts) slots.add(sequence.writes[0]);
    if (parts.length < calls.length || slots.size < rows.length + calls.length) {
      for (const call of calls) call.unprepare();
      return undefined;
    }
    for (const call of calls) {
      this.#parts.batcher.adopt(call);
      this.#engine.pin(call.hostQueue.space.pages);
    }
    return parts;
  }

  /** Gives the guessed step to the calls that ask for it, and goes on guessing until a call does not come in time. */
  async follow(first: GuessedStep): Promise<void> {
    let step: GuessedStep | undefined = first;
    for (let remainingSteps = MAX_GUESSED_STEPS; step; remainingSteps--) {
      await this.#engine.stepped(step.parts.length);
      const awaitedRows: AwaitedRows = new Map(guessesOf(step));
      const takenRows: TakenRow[] = [...joinedOf(step), ...this.#take(step, awaitedRows)];
      while (awaitedRows.size > 0 && step.endedMs === 0) {
        await this.#parts.pause.until(step.ended);
        takenRows.push(...this.#take(step, awaitedRows));
      }
      const mayGoOn = remainingSteps > 1 && !step.failure;
      let nextStep: GuessedStep | undefined = mayGoOn && awaitedRows.size === 0 ? this.#goOn(step) : undefined;
      await step.ended;
      const startedMs = this.#engine.chargeGuess(step);
      if (step.failure) return this.#fail(step, takenRows, nextStep);
      this.#handOut(step, takenRows, startedMs);
      if (awaitedRows.size > 0) {
        const ownReady = await this.#linger(step, awaitedRows);
        if (mayGoOn && ownReady !== undefined && awaitedRows.size === 0) nextStep = this.#goOn(step, ownReady);
      }
      this.#miss(awaitedRows.keys());
      step = nextStep;
    }
  }

  /** Hands over the step after a guessed one, unless another call wants the device. All calls of the guessed one have come. */
  #goOn({ parts }: GuessedStep, ownReady?: number): GuessedStep | undefined {
    // Check this before the rows are made, because they may take frames.
    if (!this.#joinableCalls(parts.map(queueOf), ownReady) || !parts.every(isSteady)) return undefined;
    const steps = parts.map((part) =>
      part instanceof NextStep
        ? { before: part, under: part.prepared }
        : { before: part.call as StepCall, under: part.sequence },
    );
    return this.handOver(this.#rows(steps), ownReady);
  }

  /** A guess of the next step for each of `steps`, in their order; empty when one of them has no guess. */
  #rows(
    steps: readonly { readonly before: StepCall | NextStep; readonly under: SequenceInput | undefined }[],
  ): readonly NextStep[] {
    const { contextLength } = this.#context.backend.config;
    const rows: NextStep[] = [];
    for (const [row, { before, under }] of steps.entries()) {
      const next = under && NextStep.after(before, under, row, contextLength, this.#parts.spares);
      if (!next) return [];
      rows.push(next);
    }
    // Two queues of an inferlet may guess the same slot of a page, and only one guess can be right. Two steps of one queue follow each other.
    const slots = new Set(rows.map(({ sequence }) => sequence.writes[0]));
    const queues = new Set(rows.map(({ hostQueue }) => hostQueue));
    return slots.size === rows.length && queues.size === rows.length ? rows : [];
  }

  /** Prepares the calls that have come, if they ask for what was guessed. Other calls stay ready for the next batch. */
  #take({ parts }: GuessedStep, awaitedRows: AwaitedRows): TakenRow[] {
    // An inferlet whose pages are full allocates one right before its call. With a spare page, the allocation need not
    // wait until the batch ends.
    for (const queue of parts.map(queueOf)) {
      const { front } = queue.batchQueue;
      if (front instanceof MemoryCall && front.allocatesPage) this.#parts.spares.spare(queue);
    }
    this.#parts.instants.allocateSpared();
    const takenRows: TakenRow[] = [];
    for (const [part, row] of awaitedRows) {
      const call = part.find();
      const sequence = call && this.#prepare(part, call);
      if (!sequence) continue;
      this.#parts.batcher.adopt(call);
      part.take(call, sequence);
      awaitedRows.delete(part);
      takenRows.push({ guess: part, row, part: { call, grant: { call, tokens: 1 }, sequence } });
    }
    return takenRows;
  }

  /** The call's input, if it is the guessed one. */
  #prepare(part: NextStep, call: StepCall): SequenceInput | undefined {
    const { pages, closed } = call.hostQueue.space;
    if (closed || pages.contender.isAway || pages.isFetching) return undefined;
    try {
      const sequence = sequenceOf(call, 1, this.#context.backend);
      if (part.matches(sequence)) return sequence;
    } catch {
      // The next batch prepares the call again, and tells its inferlet what is wrong.
    }
    call.unprepare();
    part.refuse(call);
    return undefined;
  }

  #handOut(step: GuessedStep, takenRows: readonly TakenRow[], startedMs: number): void {
    const { isAhead, submittedMs, endedMs, rows } = step;
    for (const { guess } of takenRows) guess?.recordGuess(true);
    const parts = takenRows.map(({ part }) => part);
    const outputs = takenRows.map(({ row }) => step.outputs[row] as SequenceOutput);
    this.#engine.acceptGuess({ parts, outputs, rows, isAhead, submittedMs, endedMs }, startedMs);
  }

  /** Records rows that were computed in vain. */
  #miss(guesses: Iterable<NextStep>): void {
    for (const guess of guesses) {
      guess.recordGuess(false);
      this.#parts.stats.vainGuesses++;
    }
  }

  /**
   * Keeps the device idle until the missing calls come, while no other call wants it. These calls then get the results that are there, and their
   * inferlets keep sharing steps.
   * @returns the number of ready calls of the step's inferlets; undefined when another call wants the device
   */
  async #linger(step: GuessedStep, awaitedRows: AwaitedRows): Promise<number | undefined> {
    const stepMs = step.endedMs - step.submittedMs;
    let endMs = step.endedMs + MAX_LATE_MS;
    for (let ownReady = 0; ; ) {
      for (const { guess, row, part } of this.#take(step, awaitedRows)) {
        this.#engine.acceptLate(part, step.outputs[row] as SequenceOutput);
        // The guess was not worth its time if ready calls of other inferlets of the step had to wait for this call.
        guess?.recordGuess(ownReady === 0);
      }
      // A queue whose next call differs from the guess will send no call for this step.
      const expectedCount = [...awaitedRows.keys()].filter(({ hasCall }) => !hasCall).length;
      ownReady = step.parts.filter((part) => queueOf(part).batchQueue.front?.state === 'ready').length;
      if (!this.#engine.isAlone(ownReady)) return undefined;
      const nowMs = performance.now();
      if (ownReady > 0) endMs = Math.min(endMs, nowMs + graceMs(DEFAULT_GRACE, ownReady, expectedCount, stepMs));
      if (expectedCount === 0 || nowMs >= endMs) return ownReady;
      await this.#engine.linger(endMs - nowMs);
    }
  }

  /** Computes the calls of a failed step as if it had not been guessed. */
  async #fail(step: GuessedStep, takenRows: readonly TakenRow[], nextStep: GuessedStep | undefined): Promise<void> {
    this.#miss(guessesOf(step).map(([guess]) => guess));
    const calls = [...takenRows];
    if (nextStep) {
      await nextStep.ended;
      this.#engine.chargeGuess(nextStep);
      this.#miss(guessesOf(nextStep).map(([guess]) => guess));
      calls.push(...joinedOf(nextStep));
    }
    if (calls.length > 0) await this.#engine.compute(calls.map(({ part }) => part));
  }
}

/** The queue of a part of a guessed step. */
export function queueOf(part: NextStep | StepPart): HostQueue {
  return part instanceof NextStep ? part.hostQueue : part.call.hostQueue;
}

/** The guesses of a step, each with the index of its result. */
function guessesOf({ parts }: GuessedStep): readonly (readonly [NextStep, number])[] {
  return parts.flatMap((part, row) => (part instanceof NextStep ? [[part, row] as const] : []));
}

/** The calls that joined a guessed step. */
function joinedOf({ parts }: GuessedStep): readonly TakenRow[] {
  return parts.flatMap((part, row) => (part instanceof NextStep ? [] : [{ guess: undefined, row, part }]));
}

/** True when the inferlet of this part will probably ask for another step like it. */
function isSteady(part: NextStep | StepPart): boolean {
  return part instanceof NextStep || part.call.hostQueue.trail.isSteady;
}

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

/**
 * Pages for the next allocations of inferlets whose pages are full. With a spare page, the slot of the next step is known before the allocation
 * comes, and the allocation need not wait until the batch ends. When the batch ends, `release` gives back the pages that were not allocated.
 */
export class SparePages {
  readonly #memory: Pick<DeviceMemory, 'takeSpare' | 'pool'>;
  readonly #queues = new Set<HostQueue>();

  constructor(memory: Pick<DeviceMemory, 'takeSpare' | 'pool'>) {
    this.#memory = memory;
  }

  /** First physical slot of the queue's spare page. Undefined when there is no page, or after the queue left one unused. */
  slot(queue: HostQueue): number | undefined {
    const page = queue.takesSpares ? this.spare(queue) : undefined;
    return page && page.frame * queue.space.pages.pool.pageSize;
  }

  /** The page for the queue's next allocation; undefined when there is no frame, or when the inferlet may hold no further page. */
  spare(queue: HostQueue): Page | undefined {
    if (!queue.space.pages.hasRoom) return undefined;
    queue.sparePage ??= this.#memory.takeSpare(queue.space.pages);
    if (queue.sparePage) this.#queues.add(queue);
    return queue.sparePage;
  }

  /** Gives back the pages that were not allocated. No step that writes to them may be under way. */
  release(): void {
    for (const queue of this.#queues) {
      if (queue.sparePage) this.#memory.pool.release(queue.sparePage);
      queue.sparePage = undefined;
    }
    this.#queues.clear();
  }
}
