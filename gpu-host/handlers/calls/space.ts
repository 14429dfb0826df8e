import { InferletShare } from '#scheduler/policies/shares.ts';
import { type BatchQueue, type LatencyTargets, Scoreboard } from '../../batcher/call.ts';
import { EmbedSpace } from '../../memory/embeds.ts';
import { fault } from '../../memory/fault.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import type { Page } from '../../memory/pool.ts';
import type { PageSpace, SpaceOwner } from '../../memory/space.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import type { FrameWriter } from '../../protocol/frames.ts';
import type { Termination } from '../../protocol/results.ts';
import { EMBED_LIMITS, LEAST_PENDING_BYTES, MAX_PENDING_BYTES, MAX_PENDING_CALLS } from '../engine/model.ts';
import type { Meter } from '../sharing/meter.ts';
import { StepTrail } from '../steps/step-trail.ts';
import type { HostCall } from './call.ts';

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
