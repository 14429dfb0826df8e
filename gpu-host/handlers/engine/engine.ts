import { availableParallelism, tmpdir } from 'node:os';
import type { Tracer } from '@opentelemetry/api';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Backend } from '../../backends/backend.ts';
import { batchInputs } from '../../batcher/batch.ts';
import { Batcher } from '../../batcher/batcher.ts';
import { DeviceMemory } from '../../memory/device-memory.ts';
import { ImageCache } from '../../memory/embeds.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import type { PageSnapshot } from '../../memory/pool.ts';
import { PageRegistry } from '../../memory/registry/registry.ts';
import type { PageSpace, SpaceOwner } from '../../memory/space.ts';
import { SwapStore } from '../../memory/swap/store.ts';
import type { Tenants } from '../../memory/tenants.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { QueuedOperation } from '../../protocol/operations.ts';
import { BatchTracer } from '../../telemetry/batch-trace.ts';
import { type HostCall, HostQueue, type InferletOwner, ModelSpace, type ReplyPort } from '../calls/call.ts';
import { EmbedImageCall } from '../calls/embed-image.ts';
import { namedPages } from '../calls/exports.ts';
import { type CallMaker, makeCall } from '../calls/make-call.ts';
import { BarrierCall } from '../calls/memory-call.ts';
import { RunCall } from '../calls/run.ts';
import { RunSlices } from '../calls/run-slices.ts';
import { Adapters } from '../sharing/adapters.ts';
import { type DeviceShare, type DeviceTurns, LONGEST_USE_MS } from '../sharing/device-share.ts';
import { PageTurnover } from '../sharing/meter.ts';
import { nextTurn, Pause, StepGaps, type ThreadShare } from '../sharing/thread-share.ts';
import { SparePages } from '../steps/guessed-steps.ts';
import { StepBounds } from '../steps/step-bounds.ts';
import { BatchRunner } from './batch-runner.ts';
import { Instants } from './instants.ts';
import { DEFAULT_ADAPTER_BYTES, DEFAULT_IMAGE_CACHE_BYTES, type HostedModel, maxTopK } from './model.ts';
import { Fetches, Preemption } from './preemption.ts';
import { StepStats } from './stats.ts';

/**
 * One model at work: the engine takes the calls of all inferlets, asks the batcher for the next batch and runs it. It never computes two batches
 * at once; calls that arrive meanwhile wait in their queues. Memory changes only between two batches, so that no page moves while the device uses
 * it. The one exception: during a batch of guessed steps, inferlets may get spare pages, which no step uses yet (`SparePages`).
 */
export class ModelEngine {
  readonly model: HostedModel;
  readonly memory: DeviceMemory;
  /** Exports and KV files. */
  readonly registry: PageRegistry<PageSnapshot>;
  readonly stats: StepStats;
  readonly batcher: Batcher;
  /** Sends the written results. */
  #flush: () => void;
  #swap: SwapStore | undefined;
  readonly #turnover = new PageTurnover();
  #context: { round: number };
  #maker: CallMaker;
  #runner: BatchRunner;
  readonly #spaces: ModelSpaces;
  #running = false;
  #stopped = false;
  #pause = new Pause();
  #stepBeganMs = 0;
  /** Runs long work between steps: copies of pages to other pages and to and from files, and calls with many addresses. */
  readonly #gaps: StepGaps;
  readonly #arrivals: Arrivals;
  readonly #thread: ThreadShare;
  readonly #instants: Instants;
  readonly #preemption: Preemption;
  readonly #fetches: Fetches;
  readonly #turns: DeviceTurns;
  #idleWaiters: (() => void)[] = [];
  readonly #refusedGraphs: RefusedGraphs;
  readonly #log: Logger;

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
    this.model = model;
    this.#log = log;
    this.#refusedGraphs = new RefusedGraphs(model.backend);
    this.stats = new StepStats(model.profile, model.backend.steps);
    const bounds = new StepBounds(model.backend.steps, this.stats.profile);
    this.#turns = share.join(
      () => this.batcher.tenants(),
      () => this.#pause.wake(),
    );
    this.#flush = flush;
    this.#swap = openSwap(model, log);
    const { backend } = model;
    const { pageSize, pageBytes, pageCount } = backend;
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
    const limits = {
      ...(model.maxBatchTokens ? { maxTokens: model.maxBatchTokens } : {}),
      ...(model.maxBatchCalls ? { maxCalls: model.maxBatchCalls } : {}),
    };
    const batchInputs = () => bounds.batchInputs;
    this.batcher = new Batcher({ limits, batchInputs, departure: model.departure?.() });
    this.#preemption = new Preemption(this.memory.relief, {
      batcher: this.batcher,
      spaceOf: (pages) => this.#spaces.of(pages),
      wanted: () => this.wake(),
    });
    this.#thread = thread;
    thread.join(() => this.batcher.tenants());
    this.#gaps = new StepGaps(() => this.#serveGaps(), this.stats.time, thread);
    this.#arrivals = new Arrivals(this.batcher, this.#gaps);
    this.#fetches = new Fetches(this.memory, this.#gaps, this.#preemption);
    this.#instants = new Instants(this.batcher, this.stats.time, this.#gaps, thread, {
      finish: (call) => this.#finish(call),
      fail: (call, error) => this.#fail(call, error),
      hold: (call) => this.#preemption.hold(call),
      wanted: () => this.wake(),
    });
    const context = {
      backend,
      maxTopK: maxTopK(backend),
      imageCache: new ImageCache(model.imageCacheBytes ?? DEFAULT_IMAGE_CACHE_BYTES),
      adapters: new Adapters(backend, model.adapters, model.adapterMemoryBytes ?? DEFAULT_ADAPTER_BYTES, (ms, payers) =>
        this.stats.time.spendEvenly(ms, payers),
      ),
      slices: new RunSlices(flush),
      evenSlices: new RunSlices(flush, { even: true }),
      round: 0,
      bounds,
      embeddings: model.embeddings,
    };
    this.#context = context;
    const { memory, registry, batcher } = this;
    this.#spaces = new ModelSpaces({ memory, registry, batcher, adapters: context.adapters, bytes });
    this.#maker = {
      context,
      names: namedPages(
        {
          registry,
          memory,
          copies: bytes.copies,
          maker: model.kv && { fingerprint: model.kv.fingerprint, pageSize, pageBytes },
        },
        this.#gaps,
      ),
      gaps: this.#gaps,
      resume: (run) => {
        const { space } = run.hostQueue;
        if (!space.parkedCalls.has(run)) {
          space.waitingCallCount--;
          space.noteBusy();
          this.#preemption.resume(run);
        }
        // A stopped run ends without a step, so it needs no memory.
        if (run.stopped) this.#preemption.release(run);
        this.wake();
      },
      acquired: (call) => {
        this.#preemption.resume(call);
        this.wake();
      },
      imageArrived: (call, bytes) => {
        const { space } = call.hostQueue;
        space.waitingCallCount--;
        space.noteBusy();
        call.bytes += bytes;
        space.pend(bytes);
        this.batcher.resume(call, performance.now());
        if (space.overruns) space.port.overrun(space);
        this.wake();
      },
    };
    const traces = tracer && new BatchTracer(tracer, model.name, model.backend.device);
    this.#runner = new BatchRunner(context, this.stats, traces, {
      isAlone: (own) =>
        !this.#stopped &&
        !this.#spaces.isClosing &&
        !this.#instants.isWaiting &&
        !this.#gaps.isDue &&
        !this.memory.relief.isDue &&
        !this.#turns.isContended() &&
        this.batcher.isAlone(performance.now(), own),
      waitForCall: (end) => this.#pause.until(end),
      linger: async (ms) => {
        this.#flush();
        this.stats.graceMs += await this.#pause.linger(ms);
      },
      spares: new SparePages(this.memory),
      allocateSpared: () => this.#instants.allocateSpared(),
      batcher,
      adopt: (call) => this.batcher.adopt(call),
      precedence: () => this.memory.relief.precedence(),
      computed: () => this.memory.stepped(),
      stepped: async (rows) => {
        const idleMs = this.#pause.takeLingeredMs();
        this.batcher.stepped(performance.now(), idleMs);
        this.#turns.end(performance.now() - idleMs - this.#stepBeganMs);
        this.#turns.begin(rows);
        this.#stepBeganMs = performance.now();
        this.#flush();
        await nextTurn();
      },
      goesOn: (call) => this.batcher.goesOn(call, performance.now()),
      finish: (call) => this.#finish(call),
      resume: (call) => this.#preemption.resume(call),
      hold: (call) => this.#preemption.hold(call),
      pause: (call) => {
        const { space } = call.hostQueue;
        this.batcher.pause(call);
        space.waitingCallCount++;
        space.noteBusy();
      },
    });
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
    const call = makeCall(queue, id, operation, this.#maker);
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

  /** Starts no further batch; resolves when the device is free and all writes to disk are done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#preemption.stopWatching();
    this.#pause.wake();
    if (this.batcher.busy) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
    this.#serveGaps();
    this.#maker.context.slices.close();
    this.#maker.context.evenSlices.close();
    await this.#maker.context.adapters.close();
    await this.registry.close();
    await this.#fetches.whenIdle();
    this.#swap?.close();
  }

  /** Runs batch after batch until no call is ready. Between two batches, the thread reads its sockets, so that new calls join the next batch. */
  async #work(): Promise<void> {
    while (!this.#stopped) {
      this.#preemption.admit();
      // Run the gaps first: they may let instant calls arrive. Instant calls may in turn leave long work for the next gap.
      this.#gaps.run();
      const more = this.#instants.run() || this.#gaps.isDue;
      this.#context.round++;
      if (this.#turns.mustWait()) {
        this.#flush();
        if (!more && this.#turns.isUsed()) await this.#pause.wait(LONGEST_USE_MS);
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
      this.#turns.begin(batchInputs(decision.batch));
      this.#stepBeganMs = performance.now();
      await this.#runner.run(decision.batch);
      const endedMs = performance.now() - this.#pause.takeLingeredMs();
      this.#turns.end(endedMs - this.#stepBeganMs);
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

  /** Gives long work its turn: in the engine's loop, or without the loop after a stop, when there are no more steps to work between. */
  #serveGaps(): void {
    if (!this.#stopped) this.wake();
    else if (!this.batcher.busy) {
      setImmediate(() => {
        if (this.#gaps.run()) this.#serveGaps();
      });
    }
  }

  #fail(call: HostCall, error: unknown): void {
    if (!call.hostQueue.space.closed) this.stats.failedCalls++;
    call.fail(error);
    this.#finish(call);
  }

  #finish(call: HostCall): void {
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
}

/**
 * True when the idle engine may watch the sockets for the next call instead of sleeping. This saves about 30 µs a
 * step, but takes a core. The runtime needs the core of a machine that has only one.
 */
const MAY_WATCH = availableParallelism() > 1;

/** The parts of a model that its spaces use. */
export interface SpaceParts {
  readonly memory: DeviceMemory;
  readonly registry: PageRegistry<PageSnapshot>;
  readonly batcher: Batcher;
  readonly adapters: Adapters;
  /** Memory besides pages that the tenants share. */
  readonly bytes: HostBytes;
}

/** The spaces of one model, one for each inferlet. A closed space sends no call to the device; its memory is freed once the device is idle. */
export class ModelSpaces {
  readonly open = new Set<ModelSpace>();
  readonly #byPages = new Map<PageSpace, ModelSpace>();
  /** Closed spaces whose pages the device may still use, with the callbacks for their release. */
  readonly #closing: { readonly space: ModelSpace; readonly released: () => void }[] = [];
  readonly #parts: SpaceParts;

  constructor(parts: SpaceParts) {
    this.#parts = parts;
  }

  /** True when closed spaces wait for the device. */
  get isClosing(): boolean {
    return this.#closing.length > 0;
  }

  add(port: ReplyPort, owner: InferletOwner): ModelSpace {
    const pages = this.#parts.memory.openSpace(owner, (change) => port.meter.hold(change));
    const space = new ModelSpace(port, owner, pages, this.#parts.bytes);
    this.#byPages.set(pages, space);
    this.open.add(space);
    return space;
  }

  of(pages: PageSpace): ModelSpace | undefined {
    return this.#byPages.get(pages);
  }

  /**
   * Drops the calls of an open space. `releaseClosed` later frees the space's memory and calls `released`.
   * @param why the error that answers the space's pending calls; without it, they get no answer
   */
  close(space: ModelSpace, released: () => void, why?: HandlerError): void {
    // Inferlets that share a limit with this one may use its part now, although a device step may still use its pages.
    space.pages.leaveLimits();
    this.#dropCalls(space, why);
    this.#closing.push({ space, released });
  }

  /** Frees the memory of the closed spaces. Call it while the device is idle. */
  releaseClosed(): void {
    for (const { space, released } of this.#closing.splice(0)) {
      if (this.open.has(space)) {
        this.#parts.memory.closeSpace(space.pages);
        this.#forget(space);
      }
      released();
    }
  }

  /** Drops the calls and pages of a space at once. The caller must close the space's pages in memory once no claim is under way. */
  empty(space: ModelSpace): void {
    this.#dropCalls(space);
    space.pages.releaseAll();
    this.#forget(space);
  }

  #dropCalls(space: ModelSpace, why?: HandlerError): void {
    space.closed = true;
    space.dropPending();
    space.closeAnswer = why;
    const queued = [...space.queues].flatMap(
      ({ batchQueue: order }) => this.#parts.batcher.closeQueue(order) as HostCall[],
    );
    for (const call of [...queued, ...space.arrivingCalls.splice(0)]) {
      call.release();
      call.answerEnded();
    }
    for (const call of [...space.parkedCalls]) space.unpark(call);
    this.#parts.adapters.forget(space);
    for (const tell of space.whenClosed) tell();
    space.whenClosed.clear();
  }

  #forget(space: ModelSpace): void {
    this.#parts.registry.releaseInferlet(space.holder);
    space.embeds.releaseAll();
    this.#byPages.delete(space.pages);
    this.open.delete(space);
  }
}

/**
 * Pushes arriving calls to the batcher, which orders them by their addresses. Ordering takes long for a call with many addresses, so such a
 * call waits for a gap between steps. The inferlet's later calls wait behind it; other inferlets' calls on the same socket do not.
 */
export class Arrivals {
  readonly #batcher: Batcher;
  readonly #gaps: StepGaps;

  constructor(batcher: Batcher, gaps: StepGaps) {
    this.#batcher = batcher;
    this.#gaps = gaps;
  }

  /** Pushes the call now; or later, in a gap, when it has many addresses or an earlier call of its inferlet waits for a gap. */
  take(call: HostCall, nowMs: number): void {
    const { space } = call.hostQueue;
    const { arrivingCalls, owner, port, scoreboard } = space;
    if (arrivingCalls.length > 0) arrivingCalls.push(call);
    // The batcher does not look at the addresses of a call while the inferlet has no other unfinished call.
    else if (!call.hasManyAddresses || scoreboard.size === 0) this.#batcher.push(call, nowMs);
    else {
      arrivingCalls.push(call);
      void this.#gaps.work(() => this.#takeNext(space), owner.tenant, port.meter);
    }
  }

  /** Pushes the next waiting call of a space. Returns true when more wait, false after the last, undefined when the space has ended. */
  #takeNext({ arrivingCalls }: ModelSpace): boolean | undefined {
    const call = arrivingCalls.shift();
    if (!call) return undefined;
    this.#batcher.push(call, performance.now());
    return arrivingCalls.length > 0;
  }
}

/** The store for a model's swapped-out pages; undefined when the model was given no room for one page. */
export function openSwap(model: HostedModel, log: Logger): SwapStore | undefined {
  const { backend, swapMemoryBytes = 0, swapDiskBytes = 0, openSwapFile, kv } = model;
  if (swapMemoryBytes + swapDiskBytes < backend.pageBytes) return undefined;
  return new SwapStore({
    pageBytes: backend.pageBytes,
    memoryBytes: swapMemoryBytes,
    diskBytes: swapDiskBytes,
    ...(backend.allocatePinned && { allocate: (bytes) => backend.allocatePinned?.(bytes) }),
    ...(backend.settlePages && { settle: () => backend.settlePages?.() }),
    ...(backend.pagesSettled && { settled: async () => backend.pagesSettled?.() }),
    directory: kv?.directory ?? tmpdir(),
    report: (problem) => log.error({ model: model.name, problem }, 'swap fails'),
    ...(openSwapFile && { openFile: openSwapFile }),
  });
}

/** Reports step graphs that the device's driver refused: their steps are slower, and nothing else shows it. */
export class RefusedGraphs {
  readonly #backend: Pick<Backend, 'graphs'>;
  #reportedCount = 0;

  constructor(backend: Pick<Backend, 'graphs'>) {
    this.#backend = backend;
  }

  /** Tells of the graphs that the driver has refused since the last check. */
  check(report: (text: string) => void): void {
    const { refused = 0, why } = this.#backend.graphs?.() ?? {};
    if (refused > this.#reportedCount)
      report(`the driver refused ${refused - this.#reportedCount} graphs, and steps are slower: ${why}`);
    this.#reportedCount = refused;
  }
}
