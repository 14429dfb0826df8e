import type { EncoderEngine } from '../encoders/engine.ts';
import type { HostQueue, InferletOwner, ModelSpace, OpenImage, OpenRun, ReplyPort } from '../handlers/calls/call.ts';
import type { ModelEngine } from '../handlers/engine/engine.ts';
import { Meter } from '../handlers/sharing/meter.ts';
import type { TenantLimit } from '../protocol/calls.ts';
import { type HandlerError, handlerError } from '../protocol/errors.ts';
import type { FrameWriter } from '../protocol/frames.ts';
import type { Operation } from '../protocol/operations.ts';
import { encodeError, encodeHeld, encodeTerminated, encodeUsage, type Termination } from '../protocol/results.ts';
import type { Attempted } from './attempts.ts';

/** Destination of the results of all inferlets of one connection. */
export interface ResultSink {
  readonly writer: FrameWriter;
  /** Announces a written entry, to be sent with the next flush. */
  touched(): void;
  /** Announces `bytes` of results of `inferlet`; `inferlet.noteTaken` is called when the socket has taken them. */
  wrote(inferlet: HostedInferlet, bytes: number): void;
  /** Announces that the usage of `inferlet` has changed since its last report. */
  used(inferlet: HostedInferlet): void;
}

interface OpenQueue {
  readonly engine: ModelEngine;
  readonly queue: HostQueue;
}

/** One inferlet of a connection: its queues, its space on each model, its encoders, and the bytes of its results that the peer has not taken yet. */
export class HostedInferlet implements ReplyPort, Attempted {
  readonly handle: number;
  readonly queues = new Map<number, OpenQueue>();
  readonly meter = new Meter(() => this.#noteUsage());
  /** True when the inferlet has given a queue a depth, which marks calls as part of a workflow. Its calls of encoders then also belong to it. */
  marksCalls = false;
  #owner: InferletOwner;
  readonly #results: ResultSink;
  readonly #maxUnreadBytes: number;
  #spaces = new Map<ModelEngine, ModelSpace>();
  readonly #encoders = new Set<EncoderEngine>();
  /** Spaces with held calls. */
  readonly #heldSpaces = new Set<ModelSpace>();
  /** True while the inferlet waits for something other than the device. */
  #isWaiting = false;
  #fatalError: HandlerError | undefined;
  #unreadBytes = 0;
  #span = '';
  /** True when usage has changed since the last report. */
  #usageChanged = false;
  /** Number of spaces and encoders that are being released. */
  #pendingReleases = 0;
  /** Called when no release is pending. */
  #releaseListeners: (() => void)[] = [];

  /** @param maxUnreadBytes bytes of results that the peer may leave untaken; beyond that, the host ends the inferlet */
  constructor(handle: number, owner: InferletOwner, results: ResultSink, maxUnreadBytes: number) {
    this.handle = handle;
    this.#owner = owner;
    this.#results = results;
    this.#maxUnreadBytes = maxUnreadBytes;
  }

  /** The error that answers every call once the inferlet has broken a limit of the host or lost its memory; undefined before. */
  get dead(): HandlerError | undefined {
    return this.#fatalError;
  }

  get owner(): InferletOwner {
    return this.#owner;
  }

  /** Rank of the inferlet's workflow among those of its tenant; undefined when the inferlet marks no calls. */
  get query(): number | undefined {
    return this.marksCalls ? this.#owner.arrival : undefined;
  }

  get writer(): FrameWriter {
    return this.#results.writer;
  }

  get span(): string {
    return this.#span;
  }

  /** Sets the span of the following calls by the halves of its id; two zeros mean no span. */
  setSpan(high: number, low: number): void {
    this.#span = high === 0 && low === 0 ? '' : [high, low].map((word) => word.toString(16).padStart(8, '0')).join('');
  }

  /** Sets the tenant's limit for the spaces that the inferlet opens from now on. */
  setTenantLimit(tenantPages: TenantLimit): void {
    this.#owner = { ...this.#owner, tenantPages };
  }

  /** Reports usage, unless it is unchanged since the last report and the inferlet holds no pages. */
  writeUsage(): void {
    if (!this.#usageChanged && this.meter.pages === 0) return;
    this.#usageChanged = false;
    const { deviceNs, pageMs, encodedTokens } = this.meter;
    const usage = { gpuUs: Math.floor(deviceNs / 1000), pageMs: Math.floor(pageMs), encodedTokens };
    encodeUsage(this.writer, this.handle, usage);
    this.#results.touched();
  }

  touched(): void {
    const bytes = this.writer.entryWords * 4;
    this.#unreadBytes += bytes;
    this.#results.wrote(this, bytes);
  }

  /** Call when the socket has taken `bytes` of the results. */
  noteTaken(bytes: number): void {
    this.#unreadBytes -= bytes;
  }

  finished(): void {
    if (this.#unreadBytes <= this.#maxUnreadBytes) return;
    this.#end(`more than ${this.#maxUnreadBytes} bytes of results came at once; await some before asking for more`);
  }

  overrun(): void {
    this.#end('too many calls are pending, or their arguments are too large; await some before issuing more');
  }

  /** An engine took the inferlet's memory: tells the runtime, and gives back the memory on other models too. */
  terminated(space: ModelSpace, termination: Termination): void {
    for (const [engine, modelSpace] of this.#spaces) if (modelSpace === space) this.#spaces.delete(engine);
    this.#terminate(termination);
  }

  held(space: ModelSpace, isHeld: boolean): void {
    const wasHeld = this.#heldSpaces.size > 0;
    if (isHeld) this.#heldSpaces.add(space);
    else this.#heldSpaces.delete(space);
    if (wasHeld === this.#heldSpaces.size > 0) return;
    encodeHeld(this.writer, this.handle, isHeld);
    this.#results.touched();
  }

  superseded(): void {
    this.#terminate({ cause: 'a newer attempt of its invocation has taken its place', retryAfterMs: 0 });
  }

  #terminate(termination: Termination): void {
    if (this.#fatalError) return;
    this.#fatalError = handlerError('terminated', termination.cause);
    this.release(() => {});
    this.writeUsage();
    encodeTerminated(this.writer, this.handle, termination);
    this.#results.touched();
  }

  openQueue(number: number, engine: ModelEngine): void {
    let space = this.#spaces.get(engine);
    if (!space) {
      space = engine.openSpace(this, this.#owner);
      this.#spaces.set(engine, space);
      if (this.#isWaiting) engine.setWaiting(space, true);
    }
    this.queues.set(number, { engine, queue: engine.openQueue(space) });
  }

  encode(engine: EncoderEngine, id: number, operation: Operation<'encode'>, bytes: number): void {
    this.#encoders.add(engine);
    engine.submit(this, id, operation, bytes);
  }

  /** Ends the `encode` of call `id`, if it is not over. */
  stopEncoding(id: number): void {
    for (const engine of this.#encoders) engine.stopCall(this, id);
  }

  setWaiting(waiting: boolean): void {
    this.#isWaiting = waiting;
    for (const [engine, space] of this.#spaces) engine.setWaiting(space, waiting);
  }

  /** The run of call `id`, even after its queue was closed; undefined once the run is over. */
  run(id: number): OpenRun | undefined {
    for (const space of this.#spaces.values()) {
      const run = space.runs.get(id);
      if (run) return run;
    }
    return undefined;
  }

  /** The call `id` that waits for its image; undefined once the call is over. */
  image(id: number): OpenImage | undefined {
    for (const space of this.#spaces.values()) {
      const image = space.images.get(id);
      if (image) return image;
    }
    return undefined;
  }

  /** Answers a call with an error instead of executing it. */
  refuse(id: number, why: HandlerError): void {
    if (id === 0) return;
    encodeError(this.writer, id, why);
    this.touched();
  }

  /**
   * Gives back the inferlet's memory on every model. Calls `onReleased` once this release and all earlier ones are done. Answers pending calls
   * with `why`, if given.
   */
  release(onReleased: () => void, why?: HandlerError): void {
    const spaces = [...this.#spaces];
    const encoders = [...this.#encoders];
    this.#spaces.clear();
    this.#encoders.clear();
    this.queues.clear();
    this.#pendingReleases += spaces.length + encoders.length;
    this.#releaseListeners.push(onReleased);
    const noteReleased = (): void => {
      this.#pendingReleases--;
      this.#tellReleased();
    };
    this.#tellReleased();
    for (const [engine, space] of spaces) engine.closeSpace(space, noteReleased, why);
    for (const engine of encoders) engine.drop(this, noteReleased, why);
  }

  #tellReleased(): void {
    if (this.#pendingReleases === 0) for (const tell of this.#releaseListeners.splice(0)) tell();
  }

  #noteUsage(): void {
    if (this.#usageChanged) return;
    this.#usageChanged = true;
    this.#results.used(this);
  }

  /** Ends an inferlet that broke a limit; its neighbours go on. */
  #end(why: string): void {
    if (this.#fatalError) return;
    this.#fatalError = handlerError('limit-exceeded', why);
    this.release(() => {}, this.#fatalError);
  }
}
