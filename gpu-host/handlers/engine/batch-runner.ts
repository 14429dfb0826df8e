import type { SequenceOutput } from '../../backends/backend.ts';
import { InvalidInput } from '../../backends/check.ts';
import type { Batch, Grant } from '../../batcher/batcher.ts';
import type { BatchCall } from '../../batcher/call.ts';
import { ImageCache } from '../../memory/embeds.ts';
import { CallHeld, dependencyFault } from '../../memory/fault.ts';
import type { Contender, PageSpace } from '../../memory/space.ts';
import { RUN_WINDOW_TOKENS } from '../../protocol/wire.ts';
import type { BatchTracer } from '../../telemetry/batch-trace.ts';
import { type DeviceCall, deviceError, type HostCall, type ModelContext } from '../calls/call.ts';
import type { EmbedImageCall } from '../calls/embed-image.ts';
import { DistributionCall, ForwardCall, type ProjectCall, ScoreCall } from '../calls/forward.ts';
import { RunCall } from '../calls/run.ts';
import type { Payer } from '../sharing/meter.ts';
import {
  type ComputedStep,
  checkedSequence,
  DeviceStep,
  openRuns,
  rowOf,
  type StepPart,
  type StepRow,
  sequenceOf,
} from '../steps/device-step.ts';
import { type EngineTurns, GuessedSteps, queueOf } from '../steps/guessed-steps.ts';
import { rowsAhead } from '../steps/run-ahead.ts';
import type { StepStats } from './stats.ts';

/** The engine, as the batch runner sees it. */
export interface BatchTurns extends EngineTurns {
  /** Says which of two families gets memory first now. */
  precedence(): (a: Contender, b: Contender) => boolean;
  /** Called after each step of the device, before its results are handed out. */
  computed(): void;
  /** A run continues with a step that is on the device already. */
  goesOn(call: HostCall): void;
  /** The call is complete. */
  finish(call: HostCall): void;
  /** The call has inputs left. */
  resume(call: HostCall): void;
  /** The call waits for memory; it changed nothing, and goes again later. */
  hold(call: HostCall): void;
  /** The run waits for its consumer. */
  pause(call: HostCall): void;
}

/**
 * Does one batch on the device: prepares its calls, computes them in one step, hands out the results, then projects the states that the
 * step itself has not projected. If all calls are runs and the backend works ahead, further steps of these runs follow. Each is handed over while
 * the previous one is computed, until another call waits; no page moves until these steps are done. Steps of inferlets that see every token may be
 * guessed (`guessed-steps.ts`). A call's fault fails no other call, because preparing a call finds what the backend would refuse. If the backend
 * refuses a batch nevertheless, its calls are computed one by one.
 */
export class BatchRunner {
  readonly #context: ModelContext;
  readonly #stats: StepStats;
  readonly #traces: BatchTracer | undefined;
  readonly #turns: BatchTurns;
  readonly #guesses: GuessedSteps;
  /** Spaces whose pages must not move while the batch uses them. */
  readonly #pinnedSpaces: PageSpace[] = [];
  /** Device time is charged up to this moment. */
  #chargedMs = 0;

  constructor(context: ModelContext, stats: StepStats, traces: BatchTracer | undefined, turns: BatchTurns) {
    this.#context = context;
    this.#stats = stats;
    this.#traces = traces;
    this.#turns = turns;
    this.#guesses = new GuessedSteps(context, {
      ...turns,
      prepare: (call) => sequenceOf(call, 1, context.backend),
      pin: (pages) => this.#pin(pages),
      charge: (step) => this.#charge(step, (part) => payerOf({ hostQueue: queueOf(part) })),
      // A guessed step answers no projections, so the sets of answered calls stay empty.
      accept: (step, startedMs) => this.#acceptStep(step, startedMs, undefined, new Set()),
      acceptLate: ({ call, grant }, output) => {
        // The result was there before the call came.
        stats.waited(0);
        this.#accept(call, grant, output, new Set(), false);
      },
      noteVainGuess: () => {
        stats.vainGuesses++;
      },
      compute: (parts) => this.#compute(parts, new Set(), false),
    });
  }

  async run(batch: Batch): Promise<void> {
    try {
      await this.#runPinned(batch);
    } finally {
      for (const pages of this.#pinnedSpaces.splice(0)) pages.pins--;
      this.#turns.spares.release();
    }
  }

  async #runPinned(batch: Batch): Promise<void> {
    await this.#encode(batch.encodings as readonly EmbedImageCall[]);
    const projections = this.#withValidArguments(batch.projections as readonly ProjectCall[]);
    const answeredCalls = await this.#forward(batch, projections);
    const unanswered = projections.filter((call) => !answeredCalls.has(call) && !this.#followsHeld(call));
    const distributions = unanswered.filter((call) => call instanceof DistributionCall);
    const scores = unanswered.filter((call) => call instanceof ScoreCall);
    // Without this, the queue of a third kind of projection would wait for ever.
    if (distributions.length + scores.length < unanswered.length) throw new Error('a projection has an unknown kind');
    await this.#distributions(distributions);
    await this.#scores(scores);
  }

  /** Returns the projections with valid arguments; the others have failed. */
  #withValidArguments(calls: readonly ProjectCall[]): ProjectCall[] {
    return calls.filter((call) =>
      this.#try(call, () => {
        call.check();
        return true;
      }),
    );
  }

  /** Computes the forwards. Returns the projections that the same step answered. */
  async #forward(batch: Batch, projections: readonly ProjectCall[]): Promise<Set<ProjectCall>> {
    const answeredCalls = new Set<ProjectCall>();
    const prepared = this.#prepare(batch, projections);
    if (prepared.length > 0) await this.#compute(prepared, answeredCalls, projections.length === 0);
    return answeredCalls;
  }

  /** @param mayGoOn true when further steps of the runs, or guessed steps, may follow */
  async #compute(prepared: readonly StepPart[], answeredCalls: Set<ProjectCall>, mayGoOn: boolean): Promise<void> {
    let step: DeviceStep | undefined = new DeviceStep(this.#context.backend, prepared, false);
    while (step) {
      const nextStep: DeviceStep | undefined = mayGoOn ? this.#goAhead(step) : undefined;
      const guesses = mayGoOn && !nextStep ? this.#guesses.rowsAfter(step) : [];
      await step.ended;
      const startedMs = this.#charge(step, meterOf);
      if (step.failure) {
        await this.#failStep(step, step.failure.error, nextStep, answeredCalls);
        return;
      }
      const guessedStep = this.#guesses.handOver(guesses);
      this.#acceptStep(step, startedMs, nextStep, answeredCalls);
      if (guessedStep) await this.#guesses.follow(guessedStep);
      step = nextStep;
      if (step) await this.#turns.stepped(step.parts.length);
    }
  }

  /** Hands the next step over while this one is computed, when its runs may continue. */
  #goAhead({ parts, failure }: DeviceStep): DeviceStep | undefined {
    const { backend } = this.#context;
    if (backend.ahead !== true || failure || !this.#turns.isAlone()) return undefined;
    const prepared: StepPart[] = [];
    for (const row of rowsAhead(parts.map(rowOf), RUN_WINDOW_TOKENS)) {
      const { call, grant } = parts[row] as StepPart;
      if (!(call instanceof RunCall)) throw new Error('only runs go on');
      this.#try(call, () => prepared.push({ call, grant, sequence: checkedSequence(call.prepareAhead(row), backend) }));
    }
    return prepared.length > 0 ? new DeviceStep(backend, prepared, true) : undefined;
  }

  /** Charges a step's time to its inferlets, also when it failed or they have ended; no moment is charged twice. @returns the charged start */
  #charge<P extends StepRow>({ parts, submittedMs, endedMs }: DeviceStep<P>, payer: (part: P) => Payer): number {
    const startedMs = Math.max(submittedMs, this.#chargedMs);
    this.#chargedMs = Math.max(endedMs, this.#chargedMs);
    this.#stats.time.spend(this.#chargedMs - startedMs, parts, inputsOf, payer);
    return startedMs;
  }

  #acceptStep(
    step: ComputedStep,
    startedMs: number,
    nextStep: DeviceStep | undefined,
    answeredCalls: Set<ProjectCall>,
  ): void {
    const { parts, outputs } = step;
    this.#turns.computed();
    this.#recordStep(step, startedMs);
    const continuingCalls = nextStep && new Set(nextStep.parts.map(({ call }) => call));
    for (const [i, { call, grant }] of parts.entries()) {
      if (call.state === 'done') continue;
      const acceptedMs = call.span === '' ? 0 : performance.now();
      this.#accept(call, grant, outputs[i] as SequenceOutput, answeredCalls, continuingCalls?.has(call) ?? false);
      if (call.span !== '' && call.samples) this.#traces?.recordSample(call, acceptedMs, performance.now());
    }
  }

  /** Fails a step. The device computed neither this step nor the one handed over ahead (`nextStep`). */
  async #failStep(
    step: DeviceStep,
    error: unknown,
    nextStep: DeviceStep | undefined,
    answeredCalls: Set<ProjectCall>,
  ): Promise<void> {
    if (nextStep) {
      await nextStep.ended;
      this.#charge(nextStep, meterOf);
      for (const call of openRuns(nextStep)) call.retract();
    }
    const isRefused = error instanceof InvalidInput;
    if (isRefused && step.isAhead) {
      // The backend could not take the tokens of the previous step as inputs ahead; now these tokens are known.
      for (const call of openRuns(step)) {
        call.retract();
        if (call.hostQueue.space.closed) this.#turns.finish(call);
        else this.#turns.resume(call);
      }
      return;
    }
    // One call of the batch is invalid; computing each alone finds it.
    if (isRefused && step.parts.length > 1) return this.#computeEach(step.parts, answeredCalls);
    for (const { call } of step.parts) if (call.state !== 'done') this.#fail(call, deviceError(error));
  }

  /** Computes the calls one after another, in batch order: later ones may need the results of earlier ones. */
  async #computeEach(prepared: readonly StepPart[], answeredCalls: Set<ProjectCall>): Promise<void> {
    for (const part of prepared) {
      if (part.call.state === 'done') continue;
      if (part.call.hostQueue.space.closed) {
        this.#turns.finish(part.call);
        continue;
      }
      const isReady = this.#try(part.call, () => checkBefore(part.grant));
      if (isReady) await this.#compute([part], answeredCalls, false);
    }
  }

  /** Records statistics and traces of a computed step. */
  #recordStep({ parts, rows, isAhead, endedMs }: ComputedStep, startedMs: number): void {
    const sequences = rows.map(({ sequence }) => sequence);
    this.#stats.step(sequences, endedMs - startedMs, isAhead);
    const openParts = parts.filter(({ call }) => call.state !== 'done');
    for (const { call } of openParts) this.#stats.waited(Math.max(0, startedMs - call.arrivedMs));
    if (!this.#traces || !openParts.some(({ call }) => call.span !== '')) return;
    const traced = openParts.map(({ call, sequence }) => ({ call, inputs: sequence.positions.length }));
    this.#traces.recordStep(traced, { startedMs, endedMs, padding: this.#context.backend.batchPadding?.() ?? 0 });
  }

  #prepare({ forwards: grants, awaitedBy }: Batch, projections: readonly ProjectCall[]): StepPart[] {
    const { backend } = this.#context;
    const prepared = new Map<Grant, StepPart>();
    for (const grant of inOrderOfMemory(grants, awaitedBy, this.#turns.precedence())) {
      const call = grant.call as DeviceCall;
      const { closed, pages } = call.hostQueue.space;
      if (call instanceof RunCall && call.stopped) {
        call.endStopped();
        this.#turns.finish(call);
        continue;
      }
      // Pages may come from disk for an earlier call of the space. Hold this call as well, even if its own pages are on the device.
      if ((pages.contender.isAway || pages.isFetching) && !closed) {
        this.#turns.hold(call);
        continue;
      }
      if (call instanceof ForwardCall) call.ride(ridersOf(call, projections));
      this.#try(call, () => {
        checkBefore(grant);
        prepared.set(grant, { call, grant, sequence: sequenceOf(call, grant.tokens, backend) });
        this.#pin(pages);
      });
    }
    // Making room for one call may have ended another call's inferlet, whose slots then belong to others.
    const parts = grants.flatMap((grant) => prepared.get(grant) ?? []);
    return parts.filter(({ call }) => {
      if (!call.hostQueue.space.closed) return true;
      this.#turns.finish(call);
      return false;
    });
  }

  #pin(pages: PageSpace): void {
    pages.pins++;
    this.#pinnedSpaces.push(pages);
  }

  /** Holds a projection if its forward was held. @returns true when it was */
  #followsHeld(call: ProjectCall): boolean {
    if (call.blockers === 0 || call.hostQueue.space.closed) return false;
    this.#turns.hold(call);
    return true;
  }

  #accept(
    call: DeviceCall,
    grant: Grant,
    output: SequenceOutput,
    answeredCalls: Set<ProjectCall>,
    isNextStepUnderWay: boolean,
  ): void {
    if (call.hostQueue.space.closed) {
      this.#turns.finish(call);
      return;
    }
    this.#try(call, () => {
      checkBefore(grant);
      const progress = call.accept(output);
      call.hostQueue.space.pages.contender.stepped();
      if (call instanceof ForwardCall) this.#answerRiders(call, output, answeredCalls);
      if (progress === 'done') this.#turns.finish(call);
      else if (progress === 'more' && isNextStepUnderWay) this.#turns.goesOn(call);
      else if (progress === 'more') this.#turns.resume(call);
      else this.#turns.pause(call);
    });
  }

  /** Answers the projections that the forward's own step computed. */
  #answerRiders({ fusion }: ForwardCall, output: SequenceOutput, answeredCalls: Set<ProjectCall>): void {
    if (!fusion || output.kind !== 'top') return;
    for (const { call, row } of fusion.members) {
      answeredCalls.add(call);
      this.#stats.fusedProjections++;
      this.#try(call, () => {
        call.accept(output, row);
        this.#turns.finish(call);
      });
    }
  }

  async #distributions(calls: readonly DistributionCall[]): Promise<void> {
    const topK = calls.reduce((maxTopK, call) => Math.max(maxTopK, call.topK), 1);
    await this.#project(
      calls,
      (states, ready) => this.#context.backend.project(states, ready.length, topK),
      (call, top, row) => call.accept(top, row),
    );
  }

  async #scores(calls: readonly ScoreCall[]): Promise<void> {
    await this.#project(
      calls,
      (states, ready) => {
        const tokens = ready.map((call) => call.scoredTokens);
        return this.#context.backend.score(states, ready.length, tokens);
      },
      (call, scores, row) => call.accept(scores, row),
    );
  }

  /** Encodes images. An image that the tenant had encoded before, or that several of its calls contain, is computed once. */
  async #encode(calls: readonly EmbedImageCall[]): Promise<void> {
    const { backend, imageCache } = this.#context;
    const ready: { readonly call: EmbedImageCall; readonly id: string }[] = [];
    const encodedById = new Map<string, Float32Array>();
    const missingById = new Map<
      string,
      { readonly call: EmbedImageCall; readonly key: string; readonly pixels: Uint8Array }
    >();
    for (const call of calls) {
      this.#try(call, () => {
        const pixels = call.prepare();
        const key = ImageCache.keyOf(pixels);
        const { tenant } = call.hostQueue.space.owner;
        const id = `${key} ${tenant}`;
        const cached = imageCache.get(tenant, key);
        if (cached) encodedById.set(id, cached);
        else if (!missingById.has(id)) missingById.set(id, { call, key, pixels });
        ready.push({ call, id });
      });
    }
    const { images } = backend;
    if (!images || ready.length === 0) return;
    if (missingById.size > 0) {
      const payers = [...missingById.values()].map(({ call }) => call);
      const pixels = [...missingById.values()].map((each) => each.pixels);
      try {
        const encoded = await this.#runCharged(payers, tokensOf, payerOf, () => images.encode(pixels));
        for (const [i, [id, { call, key }]] of [...missingById].entries()) {
          const values = encoded[i] as Float32Array;
          encodedById.set(id, values);
          imageCache.put(call.hostQueue.space.owner.tenant, key, values);
        }
        this.#stats.images += missingById.size;
      } catch (error) {
        for (const { call, id } of ready) if (missingById.has(id)) this.#fail(call, deviceError(error));
      }
    }
    for (const { call, id } of ready) {
      const values = encodedById.get(id);
      if (!values) continue;
      if (missingById.get(id)?.call !== call) this.#stats.imageHits++;
      this.#try(call, () => {
        if (!call.hostQueue.space.closed) call.accept(values);
        this.#turns.finish(call);
      });
    }
  }

  /** Computes `compute` over the calls' states in one go, and gives each call its row. */
  async #project<C extends ProjectCall, R>(
    calls: readonly C[],
    compute: (states: Float32Array, ready: readonly C[]) => Promise<R>,
    accept: (call: C, result: R, row: number) => void,
  ): Promise<void> {
    const ready: C[] = [];
    const states: Float32Array[] = [];
    for (const call of calls) {
      this.#try(call, () => {
        states.push(call.input());
        ready.push(call);
      });
    }
    if (ready.length === 0) return;
    const { hiddenSize } = this.#context.backend.config;
    const rows = new Float32Array(ready.length * hiddenSize);
    for (const [i, state] of states.entries()) rows.set(state, i * hiddenSize);
    let result: R;
    try {
      result = await this.#runCharged(ready, tokensOf, payerOf, () => compute(rows, ready));
    } catch (error) {
      for (const call of ready) this.#fail(call, deviceError(error));
      return;
    }
    this.#stats.projections += ready.length;
    for (const [row, call] of ready.entries()) {
      this.#try(call, () => {
        accept(call, result, row);
        this.#turns.finish(call);
      });
    }
  }

  /** Runs device work and charges it to the parts' inferlets, even when it fails or they have ended meanwhile. */
  async #runCharged<P, R>(
    parts: readonly P[],
    tokens: (part: P) => number,
    payer: (part: P) => Payer,
    work: () => Promise<R>,
  ): Promise<R> {
    const startedMs = performance.now();
    try {
      return await work();
    } finally {
      this.#stats.time.spend(performance.now() - startedMs, parts, tokens, payer);
    }
  }

  /** Runs `action` for a call. When it throws, fails or holds the call and returns false. */
  #try(call: HostCall, action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      if (error instanceof CallHeld && !call.hostQueue.space.closed) this.#turns.hold(call);
      else this.#fail(call, error);
      return false;
    }
  }

  #fail(call: HostCall, error: unknown): void {
    if (!call.hostQueue.space.closed) this.#stats.failedCalls++;
    call.fail(error);
    this.#turns.finish(call);
  }
}

const inputsOf = ({ sequence }: StepRow): number => sequence.positions.length;
const meterOf = ({ call }: StepPart): Payer => payerOf(call);
const tokensOf = ({ tokens }: HostCall): number => tokens;
const payerOf = ({ hostQueue }: Pick<HostCall, 'hostQueue'>): Payer => hostQueue.space.port.meter;

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
