import type { BatchQueue } from '../batcher/queue.ts';
import { Scoreboard } from '../batcher/scoreboard.ts';
import { EmbedSpace } from '../memory/embeds.ts';
import type { PagePool } from '../memory/pool.ts';
import { PageSpace, type SlotCopier } from '../memory/space.ts';
import type { HandlerError } from '../protocol/errors.ts';
import type { FrameWriter } from '../protocol/words.ts';
import { EMBED_LIMITS } from './model.ts';

/** Where the results of one connection go. */
export interface ReplyPort {
  readonly writer: FrameWriter;
  /** Something was written; it is to leave with the next flush. */
  touched(): void;
  /** The inferlet of `space` left more calls pending than the host holds: it is to be ended. */
  overrun(space: ModelSpace): void;
}

/** What one inferlet has on one model: its pages, its embeds, and the order between its calls. */
export class ModelSpace {
  readonly port: ReplyPort;
  readonly pages: PageSpace;
  readonly embeds = new EmbedSpace(EMBED_LIMITS);
  readonly scoreboard = new Scoreboard();
  readonly queues = new Set<HostQueue>();
  /** Runs by the id of their call, for `run-consumed` and `run-stop`. */
  readonly runs = new Map<number, { consumed(tokens: number): void; stop(): void }>();
  /** Bytes of the arguments of calls that are not done. */
  pendingBytes = 0;
  /** No result is wanted any more; memory goes back as soon as the device does not use it. */
  closed = false;

  constructor(port: ReplyPort, pool: PagePool, maxPages: number, copy: SlotCopier) {
    this.port = port;
    this.pages = new PageSpace(pool, maxPages, copy);
  }

  release(): void {
    this.pages.releaseAll();
    this.embeds.releaseAll();
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
