import { unexpected } from '#gpu-host/unexpected.ts';
import type { Backend, DeviceAdapter, SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { InvalidInput, TooLittleMemory } from '../../backends/check.ts';
import { BatchCall, type CallKind } from '../../batcher/call.ts';
import type { ImageCache } from '../../memory/embeds.ts';
import { CallFault } from '../../memory/fault.ts';
import { ModelError } from '../../models/errors.ts';
import type { MatrixRows } from '../../models/matrix-rows.ts';
import { type HandlerError, handlerError } from '../../protocol/errors.ts';
import {
  addressCount,
  answerOf,
  type DoneOperation,
  itemCount,
  type OperationName,
  type QueuedOperation,
  type ReplyOf,
} from '../../protocol/operations.ts';
import { encodeError } from '../../protocol/results.ts';
import type { AdapterHold } from '../sharing/adapter-hold.ts';
import type { Adapters } from '../sharing/adapters.ts';
import type { StepBounds } from '../steps/step-bounds.ts';
import type { RunSlices } from './run-slices.ts';
import type { HostQueue } from './space.ts';

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

/** The error of a call that needs files of a model which cannot be read. */
export function unreadable(what: string, error: ModelError): HandlerError {
  const { hint } = error;
  const advice = hint === undefined ? '' : `; ${hint}`;
  return handlerError('unavailable', `${what} cannot be read: ${unexpected(error)}${advice}`);
}

/**
 * The device's failure as an internal error; a failure to read the model's files, or too little memory, is returned unchanged. Arguments were checked before, so no
 * caller is to blame, whatever the backend says.
 */
export function deviceError(error: unknown): Error {
  if (error instanceof ModelError || error instanceof TooLittleMemory) return error;
  return new Error(error instanceof Error ? error.message : String(error), { cause: error });
}
