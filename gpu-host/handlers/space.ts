import type { BatchQueue } from '../batcher/queue.ts';
import { Scoreboard } from '../batcher/scoreboard.ts';
import { EmbedSpace } from '../memory/embeds.ts';
import type { PageSpace, SpaceOwner } from '../memory/space.ts';
import type { HandlerError } from '../protocol/errors.ts';
import type { Termination } from '../protocol/results.ts';
import type { FrameWriter } from '../protocol/words.ts';
import type { Meter } from './meter.ts';
import { EMBED_LIMITS } from './model.ts';

/** Whose memory a space is, and what it may do. */
export interface InferletOwner extends SpaceOwner {
  /** Which attempt of its invocation it is; a newer one takes its place. */
  readonly epoch: number;
  /** Priorities of its queues are held within ±`maxPriority`. */
  readonly maxPriority: number;
  /** W3C trace context; undefined when nobody records it. */
  readonly traceparent?: string | undefined;
}

/** Where the results of one connection go. */
export interface ReplyPort {
  readonly writer: FrameWriter;
  /** Who pays for what the device does for it. */
  readonly meter: Meter;
  /** Span that its calls belong to as they come, 16 hexadecimal digits; empty for none. */
  readonly span: string;
  /** Something was written; it is to leave with the next flush. */
  touched(): void;
  /** A call of the inferlet has completed and its result, if any, was written: too many of them unread end the inferlet. */
  finished(): void;
  /** The inferlet of `space` left more calls pending than the host holds: it is to be ended. */
  overrun(space: ModelSpace): void;
  /** The memory of `space` was taken back and its calls are dropped without an answer: its inferlet is to be told, and ended elsewhere. */
  terminated(space: ModelSpace, termination: Termination): void;
}

/** A run as the calls about it see it. */
export interface OpenRun {
  /** Tokens computed so far. */
  readonly produced: number;
  consumed(tokens: number): void;
  stop(): void;
}

/** A call that waits for its picture. */
export interface OpenImage {
  pixels(pixels: Uint8Array): void;
  refuse(why: HandlerError): void;
}

/** What one inferlet has on one model: its pages, its embeds, and the order between its calls. */
export class ModelSpace {
  readonly port: ReplyPort;
  readonly owner: InferletOwner;
  readonly pages: PageSpace;
  /** Who holds locks: no two spaces of a model are called alike. */
  readonly holder: string;
  readonly embeds = new EmbedSpace(EMBED_LIMITS);
  readonly scoreboard = new Scoreboard();
  readonly queues = new Set<HostQueue>();
  /** Runs by the id of their call, for `run-consumed` and `run-stop`. */
  readonly runs = new Map<number, OpenRun>();
  /** Calls with a picture by their id, for `image-pixels` and `image-failed`. */
  readonly images = new Map<number, OpenImage>();
  /** How many runs wait for their consumer, and pictures for their pixels. */
  held = 0;
  /** Bytes that calls which are not done cost: their arguments, and their keys on the scoreboard. */
  pendingBytes = 0;
  /** No result is wanted any more; memory goes back as soon as the device does not use it. */
  closed = false;
  /** What calls that were pending when it was closed are answered with; without it nobody waits for an answer. */
  ended: HandlerError | undefined;

  constructor(port: ReplyPort, owner: InferletOwner, pages: PageSpace) {
    this.port = port;
    this.owner = owner;
    this.pages = pages;
    this.holder = `${owner.id} ${owner.epoch} ${pages.order}`;
  }

  /** Tells the memory whether calls are pending. A held one is none: its pages, if it has any, are resolved anew when it goes on. */
  noteBusy(): void {
    this.pages.busy = this.scoreboard.size > this.held;
  }
}

/** One queue of an inferlet. */
export class HostQueue {
  readonly space: ModelSpace;
  readonly order: BatchQueue;
  /** First error since the last `synchronize`. */
  failure: HandlerError | undefined;

  constructor(space: ModelSpace, order: BatchQueue) {
    this.space = space;
    this.order = order;
  }
}
