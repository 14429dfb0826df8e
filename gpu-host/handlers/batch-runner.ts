import type { SequenceOutput } from '../backends/backend.ts';
import { InvalidInput } from '../backends/check.ts';
import type { Batch, Grant } from '../batcher/batcher.ts';
import { CallHeld } from '../memory/fault.ts';
import { ImageCache } from '../memory/image-cache.ts';
import type { PageSpace } from '../memory/space.ts';
import { RUN_WINDOW_TOKENS } from '../protocol/wire.ts';
import type { BatchTracer } from '../telemetry/batch-trace.ts';
import { type DeviceCall, deviceError, type HostCall, type ModelContext } from './call.ts';
import { type ComputedStep, DeviceStep, openRuns, rowOf, type StepPart, type StepRow } from './device-step.ts';
import type { EmbedImageCall } from './embed-image.ts';
import { ForwardCall } from './forward.ts';
import { checkBefore, oldestFirst, ridersOf } from './grants.ts';
import { type EngineTurns, GuessedSteps, queueOf } from './guessed-steps.ts';
import type { Payer } from './meter.ts';
import { DistributionCall, type ProjectCall, ScoreCall } from './project.ts';
import { RunCall } from './run.ts';
import { rowsAhead } from './run-ahead.ts';
import { checkedSequence, sequenceOf } from './sequence-of.ts';
import type { StepStats } from './stats.ts';

/** The engine, as the batch runner sees it. */
export interface BatchTurns extends EngineTurns {
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
 * step did not. If all calls are runs and the backend works ahead, further steps of these runs follow. Each is handed over while the one
 * before is computed, until another call waits; no page moves until they are done. Steps of inferlets that see every token may be
 * guessed (`guessed-steps.ts`). A call's fault stays its own: preparing a call finds what the backend would refuse. If that check misses a
 * fault, the calls of the batch are computed one by one.
 */
export class BatchRunner {
  readonly #context: ModelContext;
  readonly #stats: StepStats;
  readonly #traces: BatchTracer | undefined;
  readonly #turns: BatchTurns;
  readonly #guesses: GuessedSteps;
  /** Spaces whose pages the batch uses where they are. */
  readonly #pinned: PageSpace[] = [];
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
      accept: (step, startedMs) => this.#acceptStep(step, startedMs, undefined, new Set()),
      acceptLate: ({ call, grant }, output) => {
        stats.waited(0);
        this.#accept(call, grant, output, new Set(), false);
      },
      vain: () => {
        stats.vainGuesses++;
      },
      compute: (parts) => this.#compute(parts, new Set(), false),
    });
  }

  async run(batch: Batch): Promise<void> {
    try {
      await this.#runPinned(batch);
    } finally {
      for (const pages of this.#pinned.splice(0)) pages.pins--;
      this.#turns.spares.release();
    }
  }

  async #runPinned(batch: Batch): Promise<void> {
    await this.#encode(batch.encodings as readonly EmbedImageCall[]);
    const projections = this.#checked(batch.projections as readonly ProjectCall[]);
    const answered = await this.#forward(batch, projections);
    const left = projections.filter((call) => !answered.has(call) && !this.#followsHeld(call));
    await this.#distributions(left.filter((call) => call instanceof DistributionCall));
    await this.#scores(left.filter((call) => call instanceof ScoreCall));
  }

  /** Returns the projections with valid arguments; the others have failed. */
  #checked(calls: readonly ProjectCall[]): ProjectCall[] {
    return calls.filter((call) =>
      this.#try(call, () => {
        call.check();
        return true;
      }),
    );
  }

  /** Computes the forwards. Returns the projections that the same step answered. */
  async #forward(batch: Batch, projections: readonly ProjectCall[]): Promise<Set<ProjectCall>> {
    const answered = new Set<ProjectCall>();
    const prepared = this.#prepare(batch, projections);
    if (prepared.length > 0) await this.#compute(prepared, answered, projections.length === 0);
    return answered;
  }

  /** @param mayGoOn true when further steps of the runs may follow */
  async #compute(prepared: readonly StepPart[], answered: Set<ProjectCall>, mayGoOn: boolean): Promise<void> {
    let step: DeviceStep | undefined = new DeviceStep(this.#context.backend, prepared, false);
    while (step) {
      const next: DeviceStep | undefined = mayGoOn ? this.#goAhead(step) : undefined;
      const guesses = mayGoOn && !next ? this.#guesses.rowsAfter(step) : [];
      await step.ended;
      const startedMs = this.#charge(step, meterOf);
      if (step.failure) {
        await this.#failStep(step, step.failure.error, next, answered);
        return;
      }
      const guessed = this.#guesses.handOver(guesses);
      this.#acceptStep(step, startedMs, next, answered);
      if (guessed) await this.#guesses.follow(guessed);
      step = next;
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

  /** Charges the step to its parts' inferlets, even after a failure or their end, and no moment twice. @returns the device's start */
  #charge<P extends StepRow>({ parts, submittedMs, endedMs }: DeviceStep<P>, payer: (part: P) => Payer): number {
    const startedMs = Math.max(submittedMs, this.#chargedMs);
    this.#chargedMs = Math.max(endedMs, this.#chargedMs);
    this.#stats.time.spend(this.#chargedMs - startedMs, parts, inputsOf, payer);
    return startedMs;
  }

  #acceptStep(step: ComputedStep, startedMs: number, next: DeviceStep | undefined, answered: Set<ProjectCall>): void {
    const { parts, outputs } = step;
    this.#turns.computed();
    this.#tell(step, startedMs);
    const going = next && new Set(next.parts.map(({ call }) => call));
    for (const [i, { call, grant }] of parts.entries()) {
      if (call.state === 'done') continue;
      const acceptedMs = call.span === '' ? 0 : performance.now();
      this.#accept(call, grant, outputs[i] as SequenceOutput, answered, going?.has(call) ?? false);
      if (call.span !== '' && call.samples) this.#traces?.sampled(call, acceptedMs, performance.now());
    }
  }

  /** Fails a step: neither it nor the step handed over ahead was computed. */
  async #failStep(
    step: DeviceStep,
    error: unknown,
    next: DeviceStep | undefined,
    answered: Set<ProjectCall>,
  ): Promise<void> {
    if (next) {
      await next.ended;
      this.#charge(next, meterOf);
      for (const call of openRuns(next)) call.retract();
    }
    const refused = error instanceof InvalidInput;
    if (refused && step.isAhead) {
      // The backend could not take tokens of the step before; now they are known.
      for (const call of openRuns(step)) {
        call.retract();
        if (call.hostQueue.space.closed) this.#turns.finish(call);
        else this.#turns.resume(call);
      }
      return;
    }
    // One call of the batch is invalid; computing each alone finds it.
    if (refused && step.parts.length > 1) return this.#computeEach(step.parts, answered);
    for (const { call } of step.parts) if (call.state !== 'done') this.#fail(call, deviceError(error));
  }

  /** Computes the calls one after another, in batch order: later ones may need the results of earlier ones. */
  async #computeEach(prepared: readonly StepPart[], answered: Set<ProjectCall>): Promise<void> {
    for (const each of prepared) {
      if (each.call.state === 'done') continue;
      if (each.call.hostQueue.space.closed) {
        this.#turns.finish(each.call);
        continue;
      }
      const ready = this.#try(each.call, () => checkBefore(each.grant));
      if (ready) await this.#compute([each], answered, false);
    }
  }

  /** Records statistics and traces of a computed step. */
  #tell({ parts, rows, isAhead, endedMs }: ComputedStep, startedMs: number): void {
    const sequences = rows.map(({ sequence }) => sequence);
    this.#stats.step(sequences, endedMs - startedMs, isAhead);
    const wanted = parts.filter(({ call }) => call.state !== 'done');
    for (const { call } of wanted) this.#stats.waited(Math.max(0, startedMs - call.arrivedMs));
    if (!this.#traces || !wanted.some(({ call }) => call.span !== '')) return;
    const traced = wanted.map(({ call, sequence }) => ({ call, inputs: sequence.positions.length }));
    this.#traces.computed(traced, { startedMs, endedMs, padding: this.#context.backend.batchPadding?.() ?? 0 });
  }

  #prepare({ forwards: grants, awaitedBy }: Batch, projections: readonly ProjectCall[]): StepPart[] {
    const { backend } = this.#context;
    const prepared = new Map<Grant, StepPart>();
    for (const grant of oldestFirst(grants, awaitedBy)) {
      const call = grant.call as DeviceCall;
      const { closed, pages } = call.hostQueue.space;
      if (call instanceof RunCall && call.stopped) {
        call.endStopped();
        this.#turns.finish(call);
        continue;
      }
      // A call that follows one whose pages come from disk must not go first, although its own pages are on the device.
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
    this.#pinned.push(pages);
  }

  /** Holds a projection whose forward was held. */
  #followsHeld(call: ProjectCall): boolean {
    if (call.blockers === 0 || call.hostQueue.space.closed) return false;
    this.#turns.hold(call);
    return true;
  }

  #accept(
    call: DeviceCall,
    grant: Grant,
    output: SequenceOutput,
    answered: Set<ProjectCall>,
    isUnderWay: boolean,
  ): void {
    if (call.hostQueue.space.closed) {
      this.#turns.finish(call);
      return;
    }
    this.#try(call, () => {
      checkBefore(grant);
      const progress = call.accept(output);
      call.hostQueue.space.pages.contender.stepped();
      if (call instanceof ForwardCall) this.#answerRiders(call, output, answered);
      if (progress === 'done') this.#turns.finish(call);
      else if (progress === 'more' && isUnderWay) this.#turns.goesOn(call);
      else if (progress === 'more') this.#turns.resume(call);
      else this.#turns.pause(call);
    });
  }

  /** Answers the projections that the forward's own step computed. */
  #answerRiders({ fusion }: ForwardCall, output: SequenceOutput, answered: Set<ProjectCall>): void {
    if (!fusion || output.kind !== 'top') return;
    for (const { call, row } of fusion.members) {
      answered.add(call);
      this.#stats.fusedProjections++;
      this.#try(call, () => {
        call.accept(output, row);
        this.#turns.finish(call);
      });
    }
  }

  async #distributions(calls: readonly DistributionCall[]): Promise<void> {
    const topK = calls.reduce((most, call) => Math.max(most, call.topK), 1);
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
        const tokens = ready.map((call) => call.scored);
        return this.#context.backend.score(states, ready.length, tokens);
      },
      (call, scores, row) => call.accept(scores, row),
    );
  }

  /** Encodes images. An image that the tenant had encoded before, or that several of its calls contain, is computed once. */
  async #encode(calls: readonly EmbedImageCall[]): Promise<void> {
    const { backend, imageCache } = this.#context;
    const ready: { readonly call: EmbedImageCall; readonly id: string }[] = [];
    const found = new Map<string, Float32Array>();
    const missing = new Map<
      string,
      { readonly call: EmbedImageCall; readonly key: string; readonly pixels: Uint8Array }
    >();
    for (const call of calls) {
      this.#try(call, () => {
        const pixels = call.prepare();
        const key = ImageCache.keyOf(pixels);
        const { tenant } = call.hostQueue.space.owner;
        const id = `${key} ${tenant}`;
        const known = imageCache.get(tenant, key);
        if (known) found.set(id, known);
        else if (!missing.has(id)) missing.set(id, { call, key, pixels });
        ready.push({ call, id });
      });
    }
    const { images } = backend;
    if (!images || ready.length === 0) return;
    if (missing.size > 0) {
      const payers = [...missing.values()].map(({ call }) => call);
      const pixels = [...missing.values()].map((each) => each.pixels);
      try {
        const encoded = await this.#charged(payers, tokensOf, payerOf, () => images.encode(pixels));
        for (const [i, [id, { call, key }]] of [...missing].entries()) {
          const values = encoded[i] as Float32Array;
          found.set(id, values);
          imageCache.put(call.hostQueue.space.owner.tenant, key, values);
        }
        this.#stats.images += missing.size;
      } catch (error) {
        for (const { call, id } of ready) if (missing.has(id)) this.#fail(call, deviceError(error));
      }
    }
    for (const { call, id } of ready) {
      const values = found.get(id);
      if (!values) continue;
      if (missing.get(id)?.call !== call) this.#stats.imageHits++;
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
      result = await this.#charged(ready, tokensOf, payerOf, () => compute(rows, ready));
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
  async #charged<P, R>(
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
