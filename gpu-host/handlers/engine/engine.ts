import { availableParallelism } from 'node:os';
import type { Tracer } from '@opentelemetry/api';
import type { Logger } from '#scheduler/policies/logger.ts';
import { batchInputs } from '../../batcher/batch.ts';
import { Batcher } from '../../batcher/batcher.ts';
import { DeviceMemory } from '../../memory/device-memory.ts';
import { ImageCache } from '../../memory/embeds.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import { PageRegistry } from '../../memory/registry/registry.ts';
import type { PageSpace, SpaceOwner } from '../../memory/space.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { SwapStore } from '../../memory/swap/store.ts';
import type { Tenants } from '../../memory/tenants.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { QueuedOperation } from '../../protocol/operations.ts';
import { BatchTracer } from '../../telemetry/batch-trace.ts';
import { BarrierCall } from '../calls/barrier.ts';
import type { HostCall } from '../calls/call.ts';
import { EmbedImageCall } from '../calls/embed-image.ts';
import { type CallMaker, makeCall } from '../calls/make-call.ts';
import { namedPages } from '../calls/named-pages.ts';
import { RunCall } from '../calls/run.ts';
import { RunSlices } from '../calls/run-slices.ts';
import { HostQueue, type InferletOwner, type ModelSpace, type ReplyPort } from '../calls/space.ts';
import { Adapters } from '../sharing/adapters.ts';
import { type DeviceShare, type DeviceTurns, LONGEST_USE_MS } from '../sharing/device-share.ts';
import { nextTurn, Pause } from '../sharing/pause.ts';
import { StepGaps } from '../sharing/step-gaps.ts';
import type { ThreadShare } from '../sharing/thread-share.ts';
import { PageTurnover } from '../sharing/turnover.ts';
import { SparePages } from '../steps/spare-pages.ts';
import { StepBounds } from '../steps/step-bounds.ts';
import { Arrivals } from './arrivals.ts';
import { BatchRunner } from './batch-runner.ts';
import { Fetches } from './fetches.ts';
import { Instants } from './instants.ts';
import { DEFAULT_ADAPTER_BYTES, DEFAULT_IMAGE_CACHE_BYTES, type HostedModel, maxTopK } from './model.ts';
import { ModelSpaces } from './model-spaces.ts';
import { Preemption } from './preemption.ts';
import { RefusedGraphs } from './refused-graphs.ts';
import { StepStats } from './stats.ts';
import { openSwap } from './swap.ts';

/**
 * One model at work: the engine takes the calls of all inferlets, asks the batcher for the next batch and runs it. It never computes two batches
 * at once; calls that arrive meanwhile wait in their queues. Memory changes only between two batches, so that no page moves while the device uses
 * it. The one exception: during a batch of guessed steps, inferlets may get spare pages, which no step uses yet (`spare-pages.ts`).
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
    this.batcher = new Batcher({ limits, batchInputs, ...(model.batchPolicy ? { policy: model.batchPolicy } : {}) });
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
