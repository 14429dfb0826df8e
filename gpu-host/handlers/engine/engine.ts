import { availableParallelism } from 'node:os';
import type { Tracer } from '@opentelemetry/api';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { SequenceOutput } from '../../backends/backend.ts';
import { InvalidInput } from '../../backends/check.ts';
import { batchInputs } from '../../batcher/batch.ts';
import { type Batch, Batcher, type Grant } from '../../batcher/batcher.ts';
import { DeviceMemory } from '../../memory/device-memory.ts';
import { ImageCache } from '../../memory/embeds.ts';
import { CallHeld } from '../../memory/fault.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import type { PageSnapshot } from '../../memory/pool.ts';
import { PageRegistry } from '../../memory/registry/registry.ts';
import type { PageSpace, SpaceOwner } from '../../memory/space.ts';
import type { SwapStore } from '../../memory/swap/store.ts';
import type { Tenants } from '../../memory/tenants.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { QueuedOperation } from '../../protocol/operations.ts';
import { RUN_WINDOW_TOKENS } from '../../protocol/wire.ts';
import { BatchTracer } from '../../telemetry/batch-trace.ts';
import {
  type DeviceCall,
  deviceError,
  type HostCall,
  HostQueue,
  type InferletOwner,
  type ModelContext,
  type ModelSpace,
  type ReplyPort,
} from '../calls/call.ts';
import { EmbedImageCall } from '../calls/embed-image.ts';
import { type NamedPages, namedPages } from '../calls/exports.ts';
import { ForwardCall, type ProjectCall } from '../calls/forward.ts';
import { type CallMaker, makeCall } from '../calls/make-call.ts';
import { BarrierCall } from '../calls/memory-call.ts';
import { RunCall } from '../calls/run.ts';
import { RunSlices } from '../calls/run-slices.ts';
import { Adapters } from '../sharing/adapters.ts';
import { type DeviceShare, type DeviceTurns, LONGEST_USE_MS } from '../sharing/device-share.ts';
import { PageTurnover, type Payer } from '../sharing/meter.ts';
import { nextTurn, Pause, StepGaps, type ThreadShare } from '../sharing/thread-share.ts';
import {
  type ComputedStep,
  checkBefore,
  checkedSequence,
  DeviceStep,
  inOrderOfMemory,
  openRuns,
  ridersOf,
  rowOf,
  type StepPart,
  type StepRow,
  sequenceOf,
} from '../steps/device-step.ts';
import { type GuessEngine, type GuessedStep, GuessedSteps, queueOf, SparePages } from '../steps/guessed-steps.ts';
import { rowsAhead } from '../steps/run-ahead.ts';
import { StepBounds } from '../steps/step-bounds.ts';
import { BesideSteps, type CallEnds } from './beside-steps.ts';
import { Instants } from './instants.ts';
import {
  DEFAULT_ADAPTER_BYTES,
  DEFAULT_IMAGE_CACHE_BYTES,
  type HostedModel,
  maxTopK,
  openSwap,
  RefusedGraphs,
} from './model.ts';
import { Fetches, Preemption } from './preemption.ts';
import { Arrivals, ModelSpaces } from './spaces.ts';
import { StepStats } from './stats.ts';

/**
 * One model at work. The file follows a call: `submit` takes the calls of all inferlets, `#work` asks the batcher for one batch after another, `#run`
 * does a batch on the device, and `finish` ends its calls. The engine never computes two batches at once; calls that arrive meanwhile wait in their
 * queues. Memory changes only between two batches, so that no page moves while the device uses it. The one exception: during a batch of guessed
 * steps, inferlets may get spare pages, which no step uses yet (`SparePages`).
 */
export class ModelEngine implements CallEnds, CallMaker, GuessEngine {
  readonly model: HostedModel;
  readonly memory: DeviceMemory;
  /** Exports and KV files. */
  readonly registry: PageRegistry<PageSnapshot>;
  readonly stats: StepStats;
  readonly batcher: Batcher;
  readonly context: ModelContext & { round: number };
  readonly names: NamedPages;
  /** Runs long work between steps: copies of pages to other pages and to and from files, and calls with many addresses. */
  readonly gaps: StepGaps;
  /** Sends the written results. */
  readonly #flush: () => void;
  readonly #log: Logger;
  readonly #traces: BatchTracer | undefined;
  readonly #swap: SwapStore | undefined;
  readonly #device: DeviceTurns;
  readonly #thread: ThreadShare;
  readonly #spaces: ModelSpaces;
  readonly #arrivals: Arrivals;
  readonly #instants: Instants;
  readonly #preemption: Preemption;
  readonly #fetches: Fetches;
  readonly #besideSteps: BesideSteps;
  readonly #spares: SparePages;
  readonly #guesses: GuessedSteps;
  readonly #turnover = new PageTurnover();
  readonly #refusedGraphs: RefusedGraphs;
  readonly #pause = new Pause();
  #running = false;
  #stopped = false;
  #stepBeganMs = 0;
  /** Device time is charged up to this moment. */
  #chargedMs = 0;
  /** Spaces whose pages must not move while the batch uses them. */
  readonly #pinnedSpaces: PageSpace[] = [];
  #idleWaiters: (() => void)[] = [];

  /**
   * @param tenants pages that the tenants hold on all models of the host
   * @param bytes memory besides pages that the tenants share
   * @param share divides the device among its models
   * @param thread divides the host's thread among the tenants
   * @param tracer makes spans of batches whose inferlets are traced
   */
  constructor(
    model: HostedModel,
    tenants: Tenants,
    bytes: HostBytes,
    share: DeviceShare,
    thread: ThreadShare,
    flush: () => void,
    log: Logger,
    tracer?: Tracer,
  ) {
    const { backend } = model;
    const { pageSize, pageBytes, pageCount } = backend;
    this.model = model;
    this.#flush = flush;
    this.#log = log;
    this.#traces = tracer && new BatchTracer(tracer, model.name, backend.device);
    this.#refusedGraphs = new RefusedGraphs(backend);
    this.stats = new StepStats(model.profile, backend.steps);
    const { time } = this.stats;
    this.#swap = openSwap(model, log);
    this.memory = new DeviceMemory({
      pageSize,
      pageCount,
      device: backend,
      prefixCache: model.prefixCache ?? true,
      swap: this.#swap,
      rotates: true,
      terminate: (pages, cause) => this.#terminate(pages, cause),
      preempt: (family) => this.#preemption.preempt(family),
      fetch: (pages, absent) => this.#fetches.begin(pages, absent),
      tenants,
      timed: (pages, work) => this.#timed(pages, work),
      freed: (pages, frames) => {
        // Count no pages of a terminated inferlet: they go to the inferlet that it gave way to, and are room for no other.
        if (pages.terminationCause === undefined) this.#turnover.freed(frames, performance.now());
      },
    });
    this.registry = new PageRegistry({ memory: this.memory.snapshots, pageSize, pageBytes, pageCount, kv: model.kv });
    const bounds = new StepBounds(backend.steps, this.stats.profile);
    this.batcher = new Batcher({
      limits: {
        ...(model.maxBatchTokens ? { maxTokens: model.maxBatchTokens } : {}),
        ...(model.maxBatchCalls ? { maxCalls: model.maxBatchCalls } : {}),
      },
      bounds,
      departure: model.departure?.(),
    });
    const { memory, registry, batcher } = this;
    this.#device = share.join(batcher, this.#pause);
    this.#thread = thread;
    thread.join(batcher);
    const adapterBytes = model.adapterMemoryBytes ?? DEFAULT_ADAPTER_BYTES;
    const adapters = new Adapters(backend, model.adapters, adapterBytes, time);
    this.context = {
      backend,
      maxTopK: maxTopK(backend),
      imageCache: new ImageCache(model.imageCacheBytes ?? DEFAULT_IMAGE_CACHE_BYTES),
      adapters,
      slices: new RunSlices(flush),
      evenSlices: new RunSlices(flush, { even: true }),
      round: 0,
      bounds,
      embeddings: model.embeddings,
    };
    this.gaps = new StepGaps(() => this.#serveGaps(), time, thread);
    const maker = model.kv && { fingerprint: model.kv.fingerprint, pageSize, pageBytes };
    this.names = namedPages({ registry, memory, copies: bytes.copies, maker }, this.gaps);
    this.#spaces = new ModelSpaces({ memory, registry, batcher, adapters, bytes });
    this.#arrivals = new Arrivals(batcher, this.gaps);
    this.#preemption = new Preemption(memory.relief, batcher, this.#spaces, this);
    this.#fetches = new Fetches(memory, this.gaps, this.#preemption);
    this.#instants = new Instants({ batcher, time, gaps: this.gaps, thread, preemption: this.#preemption }, this);
    this.#besideSteps = new BesideSteps(this.context, this.stats, this);
    this.#spares = new SparePages(memory);
    const guessParts = {
      batcher,
      instants: this.#instants,
      pause: this.#pause,
      spares: this.#spares,
      stats: this.stats,
    };
    this.#guesses = new GuessedSteps(this.context, guessParts, this);
  }

  /** The open spaces. */
  get spaces(): ReadonlySet<ModelSpace> {
    return this.#spaces.open;
  }

  openSpace(port: ReplyPort, owner: InferletOwner): ModelSpace {
    return this.#spaces.add(port, owner);
  }

  openQueue(space: ModelSpace): HostQueue {
    const { maxPriority, tenant, targets, arrival } = space.owner;
    // Children have their root's arrival, so they belong to its query.
    const order = this.batcher.openQueue(space.scoreboard, { maxPriority, tenant, targets, query: arrival });
    const queue = new HostQueue(space, order);
    space.queues.add(queue);
    return queue;
  }

  /** Notes if the inferlet waits on I/O: while it waits and none of its calls is pending, its pages may leave the device. */
  setWaiting(space: ModelSpace, waiting: boolean): void {
    space.pages.waiting = waiting;
    if (waiting && this.memory.relief.holdsCalls) this.wake();
  }

  /** Takes a call with `bytes` bytes of arguments. Its turn comes after the earlier calls of its queue. */
  submit(queue: HostQueue, id: number, operation: QueuedOperation, bytes: number): void {
    const { space } = queue;
    if (space.closed) return;
    const startedMs = performance.now();
    const call = makeCall(queue, id, operation, this);
    call.span = space.port.span;
    call.measure(operation, bytes);
    space.pend(call.bytes);
    this.#thread.noteCall(space.owner.tenant, startedMs);
    this.#arrivals.take(call, startedMs);
    space.noteBusy();
    this.#instants.chargeSince(startedMs, call);
    if (space.overruns) space.port.overrun(space);
    this.wake();
  }

  /** Ends a queue after its earlier calls. */
  closeQueue(queue: HostQueue): void {
    if (queue.space.closed) return;
    const close = new BarrierCall(queue, 0, () => {
      this.batcher.closeQueue(queue.batchQueue);
      queue.space.queues.delete(queue);
    });
    this.#arrivals.take(close, performance.now());
    this.wake();
  }

  /**
   * Ends a space: none of its calls goes to the device any more. Calls `released` when the memory of the space is free. With `why`, the pending
   * calls get that error as their answer (calls on the device once their step has ended). Without `why`, they get no answer.
   */
  closeSpace(space: ModelSpace, released: () => void, why?: HandlerError): void {
    if (!this.spaces.has(space)) {
      released();
      return;
    }
    this.#spaces.close(space, released, why);
    if (!this.batcher.busy) this.#spaces.releaseClosed();
    this.wake();
  }

  /** Starts the engine's loop, or wakes it from a pause. A new loop starts once the frames that have arrived have been read. */
  wake(): void {
    this.#pause.wake();
    if (this.#running || this.#stopped) return;
    this.#running = true;
    setImmediate(() => void this.#work());
  }

  /** Runs batch after batch until no call is ready. Between two batches, the thread reads its sockets, so that new calls join the next batch. */
  async #work(): Promise<void> {
    while (!this.#stopped) {
      this.#preemption.admit();
      // Run the gaps first: they may let instant calls arrive. Instant calls may in turn leave long work for the next gap.
      this.gaps.run();
      const more = this.#instants.run() || this.gaps.isDue;
      this.context.round++;
      if (this.#device.mustWait()) {
        this.#flush();
        if (!more && this.#device.isUsed()) await this.#pause.wait(LONGEST_USE_MS);
        else await nextTurn();
        continue;
      }
      const decision = this.batcher.next(performance.now());
      // Only work that is left ends a stall (`preemption.ts`). Instant calls that have all been executed above do not.
      if (more || decision.kind !== 'idle') this.#preemption.stopWatching();
      if (more && decision.kind !== 'batch') {
        this.#flush();
        await nextTurn();
        continue;
      }
      if (decision.kind === 'idle') {
        this.#flush();
        if (!this.#preemption.idle() && (!MAY_WATCH || !this.batcher.expects(performance.now()))) break;
        await nextTurn();
        continue;
      }
      if (decision.kind === 'wait') {
        const startedMs = performance.now();
        this.#flush();
        await this.#pause.wait(decision.ms);
        this.stats.graceMs += performance.now() - startedMs;
        continue;
      }
      this.#device.begin(batchInputs(decision.batch));
      this.#stepBeganMs = performance.now();
      await this.#run(decision.batch);
      const endedMs = performance.now() - this.#pause.takeLingeredMs();
      this.#device.end(endedMs - this.#stepBeganMs);
      this.batcher.ended(endedMs);
      this.#spaces.releaseClosed();
      this.#instants.run();
      this.#flush();
      for (const resolve of this.#idleWaiters.splice(0)) resolve();
      await nextTurn();
    }
    this.#running = false;
    this.#flush();
    if (this.batcher.waiting > 0) return;
    this.memory.check();
    const warn = (text: string): void => this.#log.warn({ model: this.model.name }, text);
    this.stats.time.check(warn);
    // After a stop the backend may be gone.
    if (!this.#stopped) this.#refusedGraphs.check(warn);
  }

  /**
   * Does one batch on the device: prepares its calls, computes them in one step, hands out the results, then projects the states that the
   * step itself has not projected. If all calls are runs and the backend works ahead, further steps of these runs follow. Each is handed over while
   * the previous one is computed, until another call waits; no page moves until these steps are done. Steps of inferlets that see every token may be
   * guessed (`guessed-steps.ts`). A call's fault fails no other call, because preparing a call finds what the backend would refuse. If the backend
   * refuses a batch nevertheless, its calls are computed one by one.
   */
  async #run(batch: Batch): Promise<void> {
    try {
      await this.#runPinned(batch);
    } finally {
      for (const pages of this.#pinnedSpaces.splice(0)) pages.pins--;
      this.#spares.release();
    }
  }

  async #runPinned(batch: Batch): Promise<void> {
    await this.#besideSteps.encode(batch.encodings as readonly EmbedImageCall[]);
    const projections = this.#withValidArguments(batch.projections as readonly ProjectCall[]);
    const answeredCalls = await this.#forward(batch, projections);
    await this.#besideSteps.project(projections.filter((call) => !answeredCalls.has(call) && !this.#followsHeld(call)));
  }

  /** Returns the projections with valid arguments; the others have failed. */
  #withValidArguments(calls: readonly ProjectCall[]): ProjectCall[] {
    return calls.filter((call) =>
      this.attempt(call, () => {
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

  /** Holds a projection if its forward was held. @returns true when it was */
  #followsHeld(call: ProjectCall): boolean {
    if (call.blockers === 0 || call.hostQueue.space.closed) return false;
    this.#preemption.hold(call);
    return true;
  }

  /** Prepares the forwards of a batch, oldest family first. A call that fails, waits for memory or was stopped is left out. */
  #prepare({ forwards: grants, awaitedBy }: Batch, projections: readonly ProjectCall[]): StepPart[] {
    const { backend } = this.context;
    const prepared = new Map<Grant, StepPart>();
    for (const grant of inOrderOfMemory(grants, awaitedBy, this.memory.relief.precedence())) {
      const call = grant.call as DeviceCall;
      const { closed, pages } = call.hostQueue.space;
      if (call instanceof RunCall && call.stopped) {
        call.endStopped();
        this.finish(call);
        continue;
      }
      // Pages may come from disk for an earlier call of the space. Hold this call as well, even if its own pages are on the device.
      if ((pages.contender.isAway || pages.isFetching) && !closed) {
        this.#preemption.hold(call);
        continue;
      }
      if (call instanceof ForwardCall) call.ride(ridersOf(call, projections));
      this.attempt(call, () => {
        checkBefore(grant);
        prepared.set(grant, { call, grant, sequence: sequenceOf(call, grant.tokens, backend) });
        this.pin(pages);
      });
    }
    // Making room for one call may have ended another call's inferlet, whose slots then belong to others.
    const parts = grants.flatMap((grant) => prepared.get(grant) ?? []);
    return parts.filter(({ call }) => {
      if (!call.hostQueue.space.closed) return true;
      this.finish(call);
      return false;
    });
  }

  /** @param mayGoOn true when further steps of the runs, or guessed steps, may follow */
  async #compute(prepared: readonly StepPart[], answeredCalls: Set<ProjectCall>, mayGoOn: boolean): Promise<void> {
    let step: DeviceStep | undefined = new DeviceStep(this.context.backend, prepared, false);
    while (step) {
      const nextStep: DeviceStep | undefined = mayGoOn ? this.#goAhead(step) : undefined;
      const guesses = mayGoOn && !nextStep ? this.#guesses.rowsAfter(step) : [];
      await step.ended;
      const startedMs = this.#charge(step, payerOf);
      if (step.failure) {
        await this.#failStep(step, step.failure.error, nextStep, answeredCalls);
        return;
      }
      const guessedStep = this.#guesses.handOver(guesses);
      this.#acceptStep(step, startedMs, nextStep, answeredCalls);
      if (guessedStep) await this.#guesses.follow(guessedStep);
      step = nextStep;
      if (step) await this.stepped(step.parts.length);
    }
  }

  /** Hands the next step over while this one is computed, when its runs may continue. */
  #goAhead({ parts, failure }: DeviceStep): DeviceStep | undefined {
    const { backend } = this.context;
    if (backend.ahead !== true || failure || !this.isAlone()) return undefined;
    const prepared: StepPart[] = [];
    for (const row of rowsAhead(parts.map(rowOf), RUN_WINDOW_TOKENS)) {
      const { call, grant } = parts[row] as StepPart;
      if (!(call instanceof RunCall)) throw new Error('only runs go on');
      this.attempt(call, () =>
        prepared.push({ call, grant, sequence: checkedSequence(call.prepareAhead(row), backend) }),
      );
    }
    return prepared.length > 0 ? new DeviceStep(backend, prepared, true) : undefined;
  }

  /** Charges a step's time to its inferlets, also when it failed or they have ended; no moment is charged twice. @returns the charged start */
  #charge<P extends StepRow>({ parts, submittedMs, endedMs }: DeviceStep<P>, payer: (part: P) => Payer): number {
    const startedMs = Math.max(submittedMs, this.#chargedMs);
    this.#chargedMs = Math.max(endedMs, this.#chargedMs);
    this.stats.time.spend(this.#chargedMs - startedMs, parts, inputsOf, payer);
    return startedMs;
  }

  #acceptStep(
    step: ComputedStep,
    startedMs: number,
    nextStep: DeviceStep | undefined,
    answeredCalls: Set<ProjectCall>,
  ): void {
    const { parts, outputs } = step;
    this.memory.stepped();
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
      this.#charge(nextStep, payerOf);
      for (const call of openRuns(nextStep)) call.retract();
    }
    const isRefused = error instanceof InvalidInput;
    if (isRefused && step.isAhead) {
      // The backend could not take the tokens of the previous step as inputs ahead; now these tokens are known.
      for (const call of openRuns(step)) {
        call.retract();
        if (call.hostQueue.space.closed) this.finish(call);
        else this.#preemption.resume(call);
      }
      return;
    }
    // One call of the batch is invalid; computing each alone finds it.
    if (isRefused && step.parts.length > 1) return this.#computeEach(step.parts, answeredCalls);
    for (const { call } of step.parts) if (call.state !== 'done') this.fail(call, deviceError(error));
  }

  /** Computes the calls one after another, in batch order: later ones may need the results of earlier ones. */
  async #computeEach(prepared: readonly StepPart[], answeredCalls: Set<ProjectCall>): Promise<void> {
    for (const part of prepared) {
      if (part.call.state === 'done') continue;
      if (part.call.hostQueue.space.closed) {
        this.finish(part.call);
        continue;
      }
      const isReady = this.attempt(part.call, () => checkBefore(part.grant));
      if (isReady) await this.#compute([part], answeredCalls, false);
    }
  }

  /** Records statistics and traces of a computed step. */
  #recordStep({ parts, rows, isAhead, endedMs }: ComputedStep, startedMs: number): void {
    const sequences = rows.map(({ sequence }) => sequence);
    this.stats.step(sequences, endedMs - startedMs, isAhead);
    const openParts = parts.filter(({ call }) => call.state !== 'done');
    for (const { call } of openParts) this.stats.waited(Math.max(0, startedMs - call.arrivedMs));
    if (!this.#traces || !openParts.some(({ call }) => call.span !== '')) return;
    const traced = openParts.map(({ call, sequence }) => ({ call, inputs: sequence.positions.length }));
    this.#traces.recordStep(traced, { startedMs, endedMs, padding: this.context.backend.batchPadding?.() ?? 0 });
  }

  #accept(
    call: DeviceCall,
    grant: Grant,
    output: SequenceOutput,
    answeredCalls: Set<ProjectCall>,
    isNextStepUnderWay: boolean,
  ): void {
    if (call.hostQueue.space.closed) {
      this.finish(call);
      return;
    }
    this.attempt(call, () => {
      checkBefore(grant);
      const progress = call.accept(output);
      call.hostQueue.space.pages.contender.stepped();
      if (call instanceof ForwardCall) this.#answerRiders(call, output, answeredCalls);
      if (progress === 'done') this.finish(call);
      else if (progress === 'more' && isNextStepUnderWay) this.batcher.goesOn(call, performance.now());
      else if (progress === 'more') this.#preemption.resume(call);
      else this.#pauseRun(call);
    });
  }

  /** Answers the projections that the forward's own step computed. */
  #answerRiders({ fusion }: ForwardCall, output: SequenceOutput, answeredCalls: Set<ProjectCall>): void {
    if (!fusion || output.kind !== 'top') return;
    for (const { call, row } of fusion.members) {
      answeredCalls.add(call);
      this.stats.fusedProjections++;
      this.attempt(call, () => {
        call.accept(output, row);
        this.finish(call);
      });
    }
  }

  /** Runs `action` for a call. When it throws, fails or holds the call and returns false. */
  attempt(call: HostCall, action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      if (error instanceof CallHeld && !call.hostQueue.space.closed) this.#preemption.hold(call);
      else this.fail(call, error);
      return false;
    }
  }

  /** Ends a call that failed with this error. */
  fail(call: HostCall, error: unknown): void {
    if (!call.hostQueue.space.closed) this.stats.failedCalls++;
    call.fail(error);
    this.finish(call);
  }

  /** Ends a call, whose answer is written. */
  finish(call: HostCall): void {
    const { space } = call.hostQueue;
    space.pend(-call.bytes);
    call.release();
    space.unpark(call);
    if (call instanceof RunCall) space.runs.delete(call.id);
    if (call instanceof EmbedImageCall) space.images.delete(call.id);
    this.batcher.finish(call, performance.now());
    space.noteBusy();
    if (space.closed) call.answerEnded();
    else space.port.finished();
  }

  /** Holds a run until its consumer has taken tokens. */
  #pauseRun(call: HostCall): void {
    const { space } = call.hostQueue;
    this.batcher.pause(call);
    space.waitingCallCount++;
    space.noteBusy();
  }

  resumeRun(run: HostCall & { readonly stopped: boolean }): void {
    const { space } = run.hostQueue;
    if (!space.parkedCalls.has(run)) {
      space.waitingCallCount--;
      space.noteBusy();
      this.#preemption.resume(run);
    }
    // A stopped run ends without a step, so it needs no memory.
    if (run.stopped) this.#preemption.release(run);
    this.wake();
  }

  acquired(call: HostCall): void {
    this.#preemption.resume(call);
    this.wake();
  }

  imageArrived(call: HostCall, bytes: number): void {
    const { space } = call.hostQueue;
    space.waitingCallCount--;
    space.noteBusy();
    call.bytes += bytes;
    space.pend(bytes);
    this.batcher.resume(call, performance.now());
    if (space.overruns) space.port.overrun(space);
    this.wake();
  }

  isAlone(own?: number): boolean {
    return (
      !this.#stopped &&
      !this.#spaces.isClosing &&
      !this.#instants.isWaiting &&
      !this.gaps.isDue &&
      !this.memory.relief.isDue &&
      !this.#device.isContended() &&
      this.batcher.isAlone(performance.now(), own)
    );
  }

  async stepped(rows: number): Promise<void> {
    const idleMs = this.#pause.takeLingeredMs();
    this.batcher.stepped(performance.now(), idleMs);
    this.#device.end(performance.now() - idleMs - this.#stepBeganMs);
    this.#device.begin(rows);
    this.#stepBeganMs = performance.now();
    this.#flush();
    await nextTurn();
  }

  async linger(ms: number): Promise<void> {
    this.#flush();
    this.stats.graceMs += await this.#pause.linger(ms);
  }

  pin(pages: PageSpace): void {
    pages.pins++;
    this.#pinnedSpaces.push(pages);
  }

  chargeGuess(step: GuessedStep): number {
    return this.#charge(step, (part) => queueOf(part).space.port.meter);
  }

  acceptGuess(step: ComputedStep, startedMs: number): void {
    // A guessed step answers no projections, so the set of answered calls stays empty.
    this.#acceptStep(step, startedMs, undefined, new Set());
  }

  acceptLate({ call, grant }: StepPart, output: SequenceOutput): void {
    // The result was there before the call came.
    this.stats.waited(0);
    this.#accept(call, grant, output, new Set(), false);
  }

  compute(parts: readonly StepPart[]): Promise<void> {
    return this.#compute(parts, new Set(), false);
  }

  /** Gives long work its turn: in the engine's loop, or without the loop after a stop, when there are no more steps to work between. */
  #serveGaps(): void {
    if (!this.#stopped) this.wake();
    else if (!this.batcher.busy) {
      setImmediate(() => {
        if (this.gaps.run()) this.#serveGaps();
      });
    }
  }

  /** Ends an inferlet to take its pages. The device is idle, so the pages are free at once. The client fails the inferlet's calls itself. */
  #terminate(pages: PageSpace, cause: string): void {
    const space = this.#spaces.of(pages);
    if (!space) throw new Error('a space that is not open was terminated');
    const { heldPages, owner } = pages;
    const retryAfterMs = this.#turnover.retryAfterMs(heldPages, performance.now());
    this.#logTermination(owner, { cause, heldPages, retryAfterMs });
    this.#spaces.empty(space);
    // Close the space later: memory calls this method in the middle of a claim.
    this.#instants.later(() => this.memory.closeSpace(pages));
    space.port.terminated(space, { cause, retryAfterMs });
  }

  /** Logs the end of an inferlet with the state of memory that made it necessary. The runtime logs the end of the invocation. */
  #logTermination(
    { id, tenant, functionName, arrival }: SpaceOwner,
    { cause, heldPages, retryAfterMs }: { cause: string; heldPages: number; retryAfterMs: number },
  ): void {
    const { free, cached, total, swappedOut } = this.memory.pool.counts();
    const figures = {
      heldPages,
      arrival,
      freePages: free,
      cachedPages: cached,
      totalPages: total,
      swappedOut,
      retryAfterMs,
    };
    const fields = { tenant, function: functionName, invocation: id, model: this.model.name, cause, figures };
    this.#log.warn(fields, 'an inferlet was ended to free its memory');
  }

  /** Runs device work for one inferlet alone and charges it. */
  #timed(pages: PageSpace, work: () => void): void {
    const startedMs = performance.now();
    try {
      work();
    } finally {
      const meter = this.#spaces.of(pages)?.port.meter;
      if (meter) this.stats.time.spendFor(performance.now() - startedMs, meter);
    }
  }

  /** Starts no further batch; resolves when the device is free and all writes to disk are done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#preemption.stopWatching();
    this.#pause.wake();
    if (this.batcher.busy) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
    this.#serveGaps();
    this.context.slices.close();
    this.context.evenSlices.close();
    await this.context.adapters.close();
    await this.registry.close();
    await this.#fetches.whenIdle();
    this.#swap?.close();
  }
}

/**
 * True when the idle engine may watch the sockets for the next call instead of sleeping. This saves about 30 µs a
 * step, but takes a core. The runtime needs the core of a machine that has only one.
 */
const MAY_WATCH = availableParallelism() > 1;

const inputsOf = ({ sequence }: StepRow): number => sequence.positions.length;
const payerOf = ({ call }: StepPart): Payer => call.hostQueue.space.port.meter;
