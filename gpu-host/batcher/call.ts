import type { CallLinks } from './links.ts';
import type { PagesAhead } from './pages-ahead.ts';
import type { BatchQueue } from './queue.ts';

/**
 * Kinds of calls, by their use of the device.
 * A call that needs no step begins between two batches, since memory must not change under the device. Only instant calls that the engine picks
 * begin during a batch.
 * - `instant`: needs no step (allocate, free, embed); may go on, for example on a disk, while later batches compute.
 * - `barrier`: an instant call that begins once every earlier call of its queue has completed (synchronize).
 * - `idle`: needs no step, and touches memory between two batches only (slot copies).
 * - `project`: turns a state into a distribution.
 * - `encode`: turns images into embeds.
 * - `forward`: runs inputs through the transformer.
 */
export type CallKind = 'instant' | 'barrier' | 'idle' | 'project' | 'encode' | 'forward';

/** `queued` behind others; `ready` to go; `running` on the device; `paused` until it is resumed; `done`. */
export type CallState = 'queued' | 'ready' | 'running' | 'paused' | 'done';

/**
 * A call's access to a page or an embed: `read`; `fill`, which puts keys and values into empty slots of a page; `write` for any other change.
 * A call with several kinds of access to one key may name it several times; `write` and `fill` of one key exclude each other.
 */
export type Access = 'read' | 'write' | 'fill';

/** Receives the resources that a call touches. Handlers choose the keys; equal keys mean the same page or embed. */
export type KeyVisitor = (key: number, access: Access) => void;

/** A call as the batcher sees it. The handlers extend it with the call's work. */
export abstract class BatchCall {
  readonly kind: CallKind;
  readonly queue: BatchQueue;
  /** Order of arrival over all queues. */
  arrival = 0;
  /**
   * Time of arrival, or of the last token of a run (a forward that decodes token after token); milliseconds of the
   * batcher's clock.
   */
  arrivedMs = 0;
  /** Depth of the call's node in the graph of a workflow, see `Batcher.setDepth`; undefined for a call outside workflows. */
  depth: number | undefined;
  /** Order among equally urgent calls, smallest first. Equals `arrival` until the call takes another call's turn (`topology.ts`). */
  turn = 0;
  /** Milliseconds by which the call counts as arrived later (negative: earlier), because it took another call's turn. */
  yieldMs = 0;
  /** Latency target of each of the call's steps, milliseconds; set once it is ready, if its queue has targets. */
  targetMs: number | undefined;
  state: CallState = 'queued';
  /** Number of earlier unfinished calls that this one waits for. */
  blockers = 0;
  /** Later calls that may go only when this one is done. */
  dependents: BatchCall[] | undefined;
  /** Undefined on most calls. Set on calls with soft conflicts and, when `Scoreboard.isRanked`, on calls that wait or that were lent urgency. */
  links: CallLinks | undefined;

  constructor(kind: CallKind, queue: BatchQueue) {
    this.kind = kind;
    this.queue = queue;
  }

  /** Inputs still to compute; a batch's token limit counts these. */
  abstract get tokens(): number;

  /** Maximum inputs that one batch computes of the call if the call can be cut; at least 1. The batcher asks only about ready calls. */
  get stepTokens(): number {
    return Number.POSITIVE_INFINITY;
  }

  /** As `stepTokens`, while calls of other queues share the device: these wait for each step. At most `stepTokens`, which is the default. */
  get besideTokens(): number {
    return this.stepTokens;
  }

  /** Tokens whose scores the call returns; a batch bounds their sum. */
  get scores(): number {
    return 0;
  }

  /**
   * True when the call may be cut at any input. The batcher asks only when every call that this one waits for is done, because the inputs are known
   * then. The batcher never cuts a call that follows another call of the same batch.
   */
  abstract chunkable(): boolean;

  /** True when the call goes on after its `tokens` are done and keeps its place in its queue (a run). */
  abstract get continues(): boolean;

  /**
   * The forward's adapter, on a backend whose batches can have only one adapter; undefined for the model alone and for all other calls.
   * Forwards of different variants never share a batch.
   */
  get variant(): string | undefined {
    return undefined;
  }

  /**
   * The pages that the call computes next; undefined when it gives none to others. The batcher reads this value from ready calls while it chooses a
   * batch, and the value must stay the same until that batch leaves.
   */
  get pagesAhead(): PagesAhead | undefined {
    return undefined;
  }

  /**
   * Called when the call's turn has come. Takes what the call needs apart from the results of earlier calls, such as an adapter or the pixels of
   * an image. False when something is missing: the batcher then pauses the call until it is resumed, and the call keeps what it took.
   */
  acquire(): boolean {
    return true;
  }

  /**
   * Called when the call must wait again after its turn had come; it has no step under way. Gives back what `acquire` took, since other calls may
   * need it meanwhile; `acquire` takes it again before the call goes.
   */
  parked(): void {}

  abstract visitKeys(visit: KeyVisitor): void;
}

/** True when no later call has to wait for this one: it is done (or dropped), and so are all calls that it waited for. */
export function isReleased(call: BatchCall): boolean {
  return call.state === 'done' && call.blockers === 0;
}

/** True when the call computes on the device. */
export function isDeviceCall(call: BatchCall): boolean {
  return call.kind === 'forward' || call.kind === 'project' || call.kind === 'encode';
}

/** True when a batch that computes `tokens` inputs of the call is the call's last batch. */
export function leavesWith(call: BatchCall, tokens: number): boolean {
  return !call.continues && tokens === call.tokens;
}
