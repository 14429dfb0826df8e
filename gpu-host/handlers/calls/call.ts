import { unexpected } from '#gpu-host/unexpected.ts';
import { InferletShare } from '#scheduler/policies/shares.ts';
import type { Backend, DeviceAdapter, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { InvalidInput, TooLittleMemory } from '../../backends/check.ts';
import { BatchCall, type BatchQueue, type CallKind, type LatencyTargets, Scoreboard } from '../../batcher/call.ts';
import { EmbedSpace, type ImageCache } from '../../memory/embeds.ts';
import { CallFault, fault, unreadable } from '../../memory/fault.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import type { Page } from '../../memory/pool.ts';
import type { PageSpace, SpaceOwner } from '../../memory/space.ts';
import { ModelError } from '../../models/errors.ts';
import type { MatrixRows } from '../../models/matrix-rows.ts';
import { type HandlerError, handlerError } from '../../protocol/errors.ts';
import type { FrameWriter } from '../../protocol/frames.ts';
import {
  addressCount,
  answerOf,
  type DoneOperation,
  itemCount,
  type OperationName,
  type QueuedOperation,
  type ReplyOf,
} from '../../protocol/operations.ts';
import { encodeError, type Termination } from '../../protocol/results.ts';
import { EMBED_LIMITS, LEAST_PENDING_BYTES, MAX_PENDING_BYTES, MAX_PENDING_CALLS } from '../engine/model.ts';
import type { AdapterHold, Adapters } from '../sharing/adapters.ts';
import type { Meter } from '../sharing/meter.ts';
import type { StepBounds } from '../steps/step-bounds.ts';
import { StepTrail } from '../steps/step-trail.ts';
import type { RunSlices } from './run-slices.ts';

/** The model, as its calls see it. */
export interface ModelContext {
  readonly backend: Backend;
  readonly maxTopK: number;
  readonly adapters: Adapters;
  readonly imageCache: ImageCache;
  /** Time slices of the runs whose tokens inferlets read. */
  readonly slices: RunSlices;
  /** Time slices of the runs whose text clients read. */
  readonly evenSlices: RunSlices;
  /** Number of the current round of the engine's loop, which chooses at most one batch. In a round, a call's answers to the batcher stay the same. */
  readonly round: number;
  readonly bounds: StepBounds;
  /** Embeddings by token; undefined when the host cannot look them up. */
  readonly embeddings: MatrixRows | undefined;
}

/** The engine, as calls see it that wait for something other than the device. */
export interface WaitEnds {
  /** A held run may go on. */
  resumeRun(run: HostCall & { readonly stopped: boolean }): void;
  /** A call has what its `acquire` waited for: an adapter, or its refusal, or rows of the embedding matrix. */
  acquired(call: HostCall): void;
  /** An image of this many bytes, or its refusal, has arrived. */
  imageArrived(call: HostCall, bytes: number): void;
}

/**
 * Maximum items (addresses, tokens and the like) of a call that does not count as long. An address takes the thread about 0.2 µs when its call
 * arrives, and no other item takes longer: such a call takes about 50 µs at most.
 */
const MANY_ITEMS = 256;

/** Approximate bytes of a call's entry on the scoreboard for one address: the map's slot, the entry, and a list of readers. */
const KEY_BYTES = 100;

export function pageKey(address: number): number {
  return address * 2;
}

export function embedKey(address: number): number {
  return address * 2 + 1;
}

/** One call of an inferlet, from its frame to its result. */
export abstract class HostCall extends BatchCall {
  readonly hostQueue: HostQueue;
  /** Id of the result; 0 when the client wants none. */
  readonly id: number;
  /** Bytes of the arguments. */
  bytes = 0;
  /** True when the call has so many addresses that its arrival takes the thread for long. */
  hasManyAddresses = false;
  /** True when the call's lists have so many items that its execution without a step takes the thread for long. */
  isLong = false;
  /** Trace span that the call belongs to, 16 hexadecimal digits; empty for none. */
  span = '';
  /** Error of the failed call. */
  failure: HandlerError | undefined;

  constructor(kind: CallKind, queue: HostQueue, id: number) {
    super(kind, queue.batchQueue);
    this.hostQueue = queue;
    this.id = id;
  }

  /** Notes the size of the call's operation, with `bytes` of arguments. */
  measure(operation: QueuedOperation, bytes: number): void {
    const addresses = addressCount(operation);
    this.bytes = bytes + addresses * KEY_BYTES;
    this.hasManyAddresses = addresses > MANY_ITEMS;
    this.isLong = itemCount(operation) > MANY_ITEMS;
  }

  get tokens(): number {
    return 1;
  }

  get continues(): boolean {
    return false;
  }

  chunkable(): boolean {
    return false;
  }

  /** True when the call needs pages on the device, so that it is held while its family is preempted or pages come from disk. */
  get claims(): boolean {
    return false;
  }

  /** True when the next `synchronize` of the queue reports the error of the call. */
  protected get failsQueue(): boolean {
    return true;
  }

  override acquire(): boolean {
    return !this.hostQueue.space.park(this);
  }

  /** Gives back what the call holds of the host, such as an adapter. Called when the call is done or dropped. */
  release(): void {}

  /** Marks the pages, embeds or names that the failed call should have written, so that later calls which need them fail with `cause`. */
  protected abstract poison(cause: HandlerError): void;

  /** Ends the call with an error, which goes to its future, its queue and its dependents. */
  fail(caught: unknown): void {
    const error = toHandlerError(caught);
    this.failure = error;
    if (this.hostQueue.space.closed) return;
    if (this.failsQueue) this.hostQueue.failure ??= error;
    this.poison(error);
    this.replyError(error);
  }

  /**
   * Answers a call that ends with its space. A call that was answered but not yet finished when the space ended is answered again; the runtime
   * ignores the second answer.
   */
  answerEnded(): void {
    const { closeAnswer } = this.hostQueue.space;
    if (closeAnswer) this.replyError(closeAnswer);
  }

  protected replyError(error: HandlerError): void {
    const { port } = this.hostQueue.space;
    if (this.id === 0) return;
    encodeError(port.writer, this.id, error);
    port.touched();
  }

  /** Answers a call of the operation `op`; a result that does not fit a frame becomes an error. */
  protected reply<Name extends OperationName>(op: Name, value: ReplyOf<Name>): void {
    const { space } = this.hostQueue;
    if (space.closed || this.id === 0) return;
    if (!answerOf(op).write(space.port.writer, this.id, value))
      encodeError(
        space.port.writer,
        this.id,
        handlerError('limit-exceeded', 'the result is larger than a frame; ask for fewer rows'),
      );
    space.port.touched();
  }

  protected replyDone(op: DoneOperation): void {
    this.reply(op, undefined);
  }
}

/** A call that needs no device step. It runs between two batches; an allocation of a spared page also runs between two steps of a batch. */
export abstract class InstantCall extends HostCall {
  /** Executes the call. Returns a promise when it ends later, for example on a disk. @throws CallFault */
  abstract execute(): undefined | Promise<void>;
}

/** A call that computes inputs on the device, in one step or many. */
export abstract class DeviceCall extends HostCall {
  readonly #hold: AdapterHold | undefined;

  /** @param hold on the adapter that the call computes with, if any */
  constructor(kind: CallKind, queue: HostQueue, id: number, hold?: AdapterHold) {
    super(kind, queue, id);
    this.#hold = hold;
  }

  override get claims(): boolean {
    return true;
  }

  override get variant(): string | undefined {
    return this.#hold?.variant;
  }

  override acquire(): boolean {
    return super.acquire() && (this.#hold?.acquire() ?? true);
  }

  /** True when a token is picked from the output. */
  get samples(): boolean {
    return false;
  }

  /** The adapter that the call computes with. @throws CallFault when it was refused */
  get adapter(): DeviceAdapter | undefined {
    return this.#hold?.adapter;
  }

  override parked(): void {
    this.#hold?.giveBack();
  }

  override release(): void {
    this.#hold?.release();
  }

  /** The next inputs for the device, up to `granted`. @throws CallFault when the call is invalid. */
  abstract prepare(granted: number): SequenceInput;

  /** Takes what the device computed for the inputs last prepared. */
  abstract accept(output: SequenceOutput): Progress;

  /** Empties the slots that `prepare` marked as filled, because they were not computed. */
  protected abstract rollback(): void;

  override fail(caught: unknown): void {
    // The pages of a closed space may belong to another inferlet by now.
    if (!this.hostQueue.space.closed) this.rollback();
    super.fail(caught);
  }
}

/** State of a call after one of its steps: `done`, `more` when further inputs are ready, `held` until the consumer of a run catches up. */
export type Progress = 'done' | 'more' | 'held';

/** Turns a thrown value into an error that inferlets may receive. */
function toHandlerError(caught: unknown): HandlerError {
  if (caught instanceof CallFault) return caught.error;
  if (caught instanceof InvalidInput) return handlerError('invalid-argument', caught.message);
  if (caught instanceof TooLittleMemory) return handlerError('limit-exceeded', caught.message);
  if (caught instanceof ModelError) return unreadable('the model', caught);
  return handlerError('internal', `the device failed: ${unexpected(caught)}`);
}

/**
 * The device's failure as an internal error; a failure to read the model's files, or too little memory, is returned unchanged. Arguments were checked before, so no
 * caller is to blame, whatever the backend says.
 */
export function deviceError(error: unknown): Error {
  if (error instanceof ModelError || error instanceof TooLittleMemory) return error;
  return new Error(error instanceof Error ? error.message : String(error), { cause: error });
}

/** Owner and limits of a space. */
export interface InferletOwner extends SpaceOwner {
  /** Attempt of the invocation; a newer attempt replaces this one. */
  readonly epoch: number;
  /** The queues' priorities are clamped to ±`maxPriority`. */
  readonly maxPriority: number;
  /** Latency targets of the inferlet's calls; undefined for an ordinary inferlet. */
  readonly targets?: LatencyTargets | undefined;
  /** W3C trace context; undefined when the inferlet is not traced. */
  readonly traceparent?: string | undefined;
}

/** Destination of one inferlet's results. */
export interface ReplyPort {
  readonly writer: FrameWriter;
  /** Pays for the inferlet's device time. */
  readonly meter: Meter;
  /** Span of the calls that arrive now, 16 hexadecimal digits; empty for none. */
  readonly span: string;
  /** Announces a written result, to be sent with the next flush. */
  touched(): void;
  /** Announces that a call has completed and its result, if any, was written. Too many unread results end the inferlet. */
  finished(): void;
  /** The inferlet of `space` left more calls pending than the host holds, and must end. */
  overrun(space: ModelSpace): void;
  /**
   * The host begins or stops to hold calls of `space`. It holds them while the space's family (an invocation and its
   * children) is preempted, and while pages of the space come from disk.
   */
  held(space: ModelSpace, isHeld: boolean): void;
  /**
   * Memory took back `space`, which belongs to one model, and dropped its calls without an answer. The port tells the
   * inferlet's runtime, and gives back the inferlet's memory on all other models.
   */
  terminated(space: ModelSpace, termination: Termination): void;
}

/** A run as `run-consumed`, `run-stop` and `run-piped` see it. */
export interface OpenRun {
  /** Tokens computed so far. */
  readonly produced: number;
  consumed(tokens: number): void;
  stop(): void;
  piped(): void;
}

/** A call that waits for its image. */
export interface OpenImage {
  pixels(pixels: Uint8Array): void;
  refuse(why: HandlerError): void;
}

/** One inferlet on one model: its pages, its embeds, and the order between its calls. */
export class ModelSpace {
  readonly port: ReplyPort;
  readonly owner: InferletOwner;
  readonly pages: PageSpace;
  /** This space's name as a holder of file locks, unique among the spaces of a model. */
  readonly holder: string;
  readonly embeds: EmbedSpace;
  readonly scoreboard = new Scoreboard();
  readonly queues = new Set<HostQueue>();
  /** Runs by the id of their call, for `run-consumed`, `run-stop` and `run-piped`. */
  readonly runs = new Map<number, OpenRun>();
  /** Calls with an image by their id, for `image-pixels` and `image-failed`. */
  readonly images = new Map<number, OpenImage>();
  /** Number of calls that wait for the client: runs that wait for their consumer, and calls with an image that wait for its pixels. */
  waitingCallCount = 0;
  /**
   * Calls that wait, in order, to be pushed to the batcher (see `Arrivals`). A call that names many pages or embeds
   * takes the thread so long that it waits for the time between two device steps. All later calls of the inferlet wait
   * behind it.
   */
  readonly arrivingCalls: HostCall[] = [];
  /** Calls that are held while the family is preempted or pages come from disk. */
  readonly parkedCalls = new Set<HostCall>();
  #pendingBytes = 0;
  readonly #pendingShare: InferletShare;
  /** True once the inferlet has ended and waits for no results. Its memory is freed as soon as the device does not use it. */
  closed = false;
  /** Answer to the calls that were pending at the close. When undefined, these calls get no answer. */
  closeAnswer: HandlerError | undefined;
  /** Called at the close: calls that wait for something other than the device stop waiting. */
  readonly whenClosed = new Set<() => void>();

  constructor(port: ReplyPort, owner: InferletOwner, pages: PageSpace, { heap, values }: HostBytes) {
    this.port = port;
    this.owner = owner;
    this.pages = pages;
    const { tenant } = owner;
    this.embeds = new EmbedSpace(EMBED_LIMITS, {
      heap: new InferletShare(heap, tenant),
      values: new InferletShare(values, tenant),
    });
    this.#pendingShare = new InferletShare(heap, tenant, LEAST_PENDING_BYTES);
    this.holder = `${owner.id} ${owner.epoch} ${pages.order}`;
  }

  /** Bytes of pending calls. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Counts the bytes of a pending call: its arguments and its entries on the scoreboard. `bytes` is negative when the call has ended. */
  pend(bytes: number): void {
    this.#pendingBytes += bytes;
    this.#pendingShare.add(bytes);
  }

  /** True when the inferlet has more pending calls than it may have alone, or beside the tenant's other inferlets. */
  get overruns(): boolean {
    if (this.#pendingCalls > MAX_PENDING_CALLS || this.#pendingBytes > MAX_PENDING_BYTES) return true;
    return !this.#pendingShare.fits(0);
  }

  get #pendingCalls(): number {
    return this.scoreboard.size + this.arrivingCalls.length;
  }

  /** Gives the memory of the pending calls back to the tenant. Call it when the inferlet has ended. */
  dropPending(): void {
    this.#pendingShare.close();
  }

  /** Holds a call that needs pages while the family is preempted or pages come from disk. Returns false when the call may go on. */
  park(call: HostCall): boolean {
    if (!call.claims || !(this.pages.contender.isAway || this.pages.isFetching)) return false;
    if (this.parkedCalls.has(call)) return true;
    this.parkedCalls.add(call);
    this.pages.contender.heldCalls++;
    if (this.parkedCalls.size === 1) this.port.held(this, true);
    // The call may be between two of its steps: its pages may move now.
    call.parked();
    return true;
  }

  /** Stops holding a call. */
  unpark(call: HostCall): void {
    if (!this.parkedCalls.delete(call)) return;
    this.pages.contender.heldCalls--;
    if (this.parkedCalls.size === 0) this.port.held(this, false);
  }

  /**
   * Tells memory whether calls are pending: the pages of an idle inferlet may leave the device. The calls of `waitingCallCount` do not count: a run
   * looks up its pages anew when it goes on, and a call with an image uses no pages.
   */
  noteBusy(): void {
    this.pages.busy = this.#pendingCalls > this.waitingCallCount;
  }
}

/** One queue of an inferlet. */
export class HostQueue {
  readonly space: ModelSpace;
  readonly batchQueue: BatchQueue;
  readonly trail = new StepTrail();
  /**
   * A page without an address (see `SparePages`). The queue's next allocation of one page takes it. Until then, a
   * guessed step, which begins before its calls have come, may write to it.
   */
  sparePage: Page | undefined;
  /** False after a step was guessed in vain on a spare page: the inferlet may allocate its pages in another way than one by one. */
  takesSpares = true;
  /** First error since the last `synchronize`. */
  failure: HandlerError | undefined;
  #isStopped = false;

  constructor(space: ModelSpace, batchQueue: BatchQueue) {
    this.space = space;
    this.batchQueue = batchQueue;
  }

  /** Keeps the device from beginning further calls of the queue. */
  stop(): void {
    this.#isStopped = true;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** @throws CallFault when the queue was stopped */
  checkGoesOn(): void {
    if (this.#isStopped) throw fault('cancelled', 'the inferlet has stopped the queue');
  }
}
