import { availableParallelism } from 'node:os';
import type { SequenceInput, SequenceOutput } from '../backends/backend.ts';
import { type Batch, Batcher } from '../batcher/batcher.ts';
import { fault } from '../memory/fault.ts';
import { PagePool } from '../memory/pool.ts';
import type { QueuedOperation } from '../protocol/decode-calls.ts';
import { MAX_LIST } from '../protocol/wire.ts';
import type { DeviceCall, HostCall, ModelContext } from './call.ts';
import { ForwardCall } from './forward.ts';
import { BarrierCall, InstantCall, longestList, RefusedCall, synchronizeCall } from './instant.ts';
import { type HostedModel, MAX_PENDING_BYTES, MAX_PENDING_CALLS, maxTopK } from './model.ts';
import { ProjectCall } from './project.ts';
import { RunCall } from './run.ts';
import { HostQueue, ModelSpace, type ReplyPort } from './space.ts';
import { StepStats } from './stats.ts';
import { StepCall } from './step.ts';

/**
 * One model at work: takes the calls of all inferlets, asks the batcher what to do next and has the backend do it. It never computes two
 * batches at once; while one is computed, calls queue, and calls that need no device are done beside it.
 */
export class ModelEngine {
  readonly model: HostedModel;
  readonly pool: PagePool;
  readonly stats = new StepStats();
  readonly batcher: Batcher;
  readonly spaces = new Set<ModelSpace>();
  /** Sends the results that were written. */
  #flush: () => void;
  #context: ModelContext;
  #running = false;
  #stopped = false;
  /** Spaces that were closed while the device may be using their pages, with what to tell when they are released. */
  #closing: { readonly space: ModelSpace; readonly released: () => void }[] = [];
  #idle: (() => void)[] = [];

  constructor(model: HostedModel, flush: () => void) {
    const { backend } = model;
    this.model = model;
    this.#flush = flush;
    this.pool = new PagePool(backend.pageSize, backend.pageCount);
    const limits = {
      ...(model.maxBatchTokens ? { maxTokens: model.maxBatchTokens } : {}),
      ...(model.maxBatchCalls ? { maxCalls: model.maxBatchCalls } : {}),
    };
    this.batcher = new Batcher({ limits });
    this.#context = { backend, maxTopK: maxTopK(backend), embedding: embeddingLookup(model) };
  }

  openSpace(port: ReplyPort, maxPages: number): ModelSpace {
    const space = new ModelSpace(port, this.pool, maxPages, (sources, destinations) =>
      this.model.backend.copySlots(sources, destinations),
    );
    this.spaces.add(space);
    return space;
  }

  openQueue(space: ModelSpace): HostQueue {
    const queue = new HostQueue(space, this.batcher.openQueue(space.scoreboard));
    space.queues.add(queue);
    return queue;
  }

  /** Takes a call with `bytes` of arguments; its turn comes when the queue's earlier calls have gone. */
  submit(queue: HostQueue, id: number, operation: QueuedOperation, bytes: number): void {
    const { space } = queue;
    if (space.closed) return;
    const call = this.#makeCall(queue, id, operation);
    call.bytes = bytes;
    space.pendingBytes += bytes;
    this.batcher.push(call, now());
    if (space.scoreboard.size > MAX_PENDING_CALLS || space.pendingBytes > MAX_PENDING_BYTES) space.port.overrun(space);
    this.wake();
  }

  /** Ends a queue after its earlier calls. */
  closeQueue(queue: HostQueue): void {
    if (queue.space.closed) return;
    const close = new BarrierCall(queue, 0, () => {
      this.batcher.closeQueue(queue.order);
      queue.space.queues.delete(queue);
    });
    this.batcher.push(close, now());
    this.wake();
  }

  /** Ends a space: nothing of it goes to the device any more, and `released` is told when its memory is back. */
  closeSpace(space: ModelSpace, released: () => void): void {
    space.closed = true;
    for (const queue of space.queues) this.batcher.closeQueue(queue.order);
    this.#closing.push({ space, released });
    if (!this.batcher.busy) this.#releaseClosed();
    this.wake();
  }

  /** Sees to it that the next batch leaves, after the frames that have come were read. */
  wake(): void {
    if (this.#running || this.#stopped) return;
    this.#running = true;
    setImmediate(() => void this.#work());
  }

  /** No batch leaves any more; resolves when the device is free. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (!this.batcher.busy) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  #makeCall(queue: HostQueue, id: number, operation: QueuedOperation): HostCall {
    const longest = longestList(operation);
    if (longest > MAX_LIST) {
      return new RefusedCall(
        queue,
        id,
        fault('invalid-argument', `a list of ${longest} in one call; ${MAX_LIST} is the limit`),
      );
    }
    switch (operation.op) {
      case 'step':
        return new StepCall(queue, id, operation.request, this.#context);
      case 'forward':
        return new ForwardCall(queue, id, operation, this.#context);
      case 'next-distribution':
        return new ProjectCall(queue, id, operation, this.#context);
      case 'run':
        return new RunCall(queue, id, operation.request, this.#context, (run) => this.#resume(run));
      case 'synchronize':
        return synchronizeCall(queue, id);
      default:
        return new InstantCall(queue, id, operation, this.model.backend.config.vocabularySize);
    }
  }

  #resume(run: RunCall): void {
    this.batcher.resume(run, now());
    this.wake();
  }

  /** Batch after batch, until nothing is ready. Between two it lets the sockets be read, so that fresh calls make the next one. */
  async #work(): Promise<void> {
    while (!this.#stopped) {
      this.#instants();
      const decision = this.batcher.next(now());
      if (decision.kind === 'idle') {
        this.#flush();
        if (!MAY_WATCH || !this.batcher.expects(now())) break;
        await nextTurn();
        continue;
      }
      if (decision.kind === 'batch') {
        await this.#execute(decision.batch);
        this.batcher.ended(now());
        this.#releaseClosed();
        this.#instants();
        this.#flush();
        for (const resolve of this.#idle.splice(0)) resolve();
      } else {
        // The grace is far below a timer's millisecond, so it is spent in turns of the event loop.
        const startedMs = now();
        this.#flush();
        await nextTurn();
        this.stats.graceMs += now() - startedMs;
        continue;
      }
      await nextTurn();
    }
    this.#running = false;
    this.#flush();
    if (this.batcher.waiting === 0) this.pool.check();
  }

  #instants(): void {
    for (let call = this.batcher.takeInstant(); call; call = this.batcher.takeInstant()) {
      try {
        if (call instanceof InstantCall || call instanceof BarrierCall || call instanceof RefusedCall) call.execute();
      } catch (error) {
        this.#fail(call as HostCall, error);
      }
      this.#finish(call as HostCall);
    }
  }

  async #execute(batch: Batch): Promise<void> {
    if (batch.forwards.length > 0) await this.#forward(batch);
    if (batch.projections.length > 0) await this.#project(batch);
  }

  async #forward(batch: Batch): Promise<void> {
    const calls: DeviceCall[] = [];
    const sequences: SequenceInput[] = [];
    for (const grant of batch.forwards) {
      const call = grant.call as DeviceCall;
      if (call instanceof RunCall && call.stopped) {
        call.endStopped();
        this.#finish(call);
        continue;
      }
      try {
        sequences.push(call.prepare(grant.tokens, this.#context));
        calls.push(call);
      } catch (error) {
        this.#failDevice(call, error);
      }
    }
    if (calls.length === 0) return;
    const startedMs = now();
    let outputs: readonly SequenceOutput[];
    try {
      outputs = await this.model.backend.forward(sequences);
    } catch (error) {
      for (const call of calls) this.#failDevice(call, error);
      return;
    }
    this.stats.step(sequences, now() - startedMs);
    for (let i = 0; i < calls.length; i++) {
      const call = calls[i] as DeviceCall;
      try {
        this.#accept(call, outputs[i]);
      } catch (error) {
        this.#failDevice(call, error);
      }
    }
  }

  #failDevice(call: DeviceCall, error: unknown): void {
    this.#fail(call, error);
    this.#finish(call);
  }

  #accept(call: DeviceCall, output: SequenceOutput | undefined): void {
    if (!output) throw new Error('the backend returned fewer outputs than sequences');
    const { space } = call.hostQueue;
    const progress = space.closed ? 'done' : call.accept(output);
    if (progress === 'done') this.#finish(call);
    else if (progress === 'more') this.batcher.resume(call, now());
    else this.batcher.pause(call);
  }

  async #project(batch: Batch): Promise<void> {
    const calls: ProjectCall[] = [];
    const states: Float32Array[] = [];
    for (const call of batch.projections as ProjectCall[]) {
      try {
        states.push(call.input());
        calls.push(call);
      } catch (error) {
        this.#fail(call, error);
        this.#finish(call);
      }
    }
    if (calls.length === 0) return;
    const { backend } = this.model;
    const { hiddenSize } = backend.config;
    const rows = new Float32Array(calls.length * hiddenSize);
    for (let i = 0; i < calls.length; i++) rows.set(states[i] as Float32Array, i * hiddenSize);
    const topK = calls.reduce((most, call) => Math.max(most, call.topK), 1);
    const startedMs = now();
    try {
      const top = await backend.project(rows, calls.length, topK);
      this.stats.projection(calls.length, now() - startedMs);
      for (let i = 0; i < calls.length; i++) (calls[i] as ProjectCall).accept(top, i);
    } catch (error) {
      for (const call of calls) this.#fail(call, error);
    }
    for (const call of calls) this.#finish(call);
  }

  #fail(call: HostCall, error: unknown): void {
    this.stats.failedCalls++;
    call.fail(error);
  }

  #finish(call: HostCall): void {
    const { space } = call.hostQueue;
    space.pendingBytes -= call.bytes;
    if (call instanceof RunCall) space.runs.delete(call.id);
    this.batcher.finish(call, now());
  }

  #releaseClosed(): void {
    for (const { space, released } of this.#closing.splice(0)) {
      space.release();
      this.spaces.delete(space);
      released();
    }
  }
}

/** Watching the sockets saves the sleep and the waking up, some 30 µs a step, but takes the core that on a lone one the runtime needs. */
const MAY_WATCH = availableParallelism() > 1;

/** Milliseconds with microseconds behind the point. */
function now(): number {
  return performance.now();
}

/** Lets I/O that has come be handled. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Rows of the embedding matrix, read when first needed. */
function embeddingLookup(model: HostedModel): (token: number) => Float32Array | undefined {
  const { hiddenSize } = model.backend.config;
  let matrix: Float32Array | undefined;
  return (token) => {
    matrix ??= model.embeddings?.();
    return matrix?.subarray(token * hiddenSize, (token + 1) * hiddenSize);
  };
}
