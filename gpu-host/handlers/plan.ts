import type { InputRows, OutputRequest, SequenceInput } from '../backends/backend.ts';
import { fault } from '../memory/fault.ts';
import { fillSlot, unfillSlot } from '../memory/pool.ts';
import type { ContextPages, EmptySlot, PageSpace } from '../memory/space.ts';
import type { PrefixRequest, PrefixRun } from '../memory/space-prefix.ts';
import type { ModelConfig } from '../models/config.ts';
import type { Mask } from '../protocol/calls.ts';
import { isChunkable } from './chunkable.ts';
import { type Context, checkContext, gatherContext, matrixRows, visibility } from './visibility.ts';

/** What a forward or a step asks of the page table. */
export interface ForwardRequest {
  readonly positions: Uint32Array;
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly mask: Mask | undefined;
  /** The inputs as far as they are known, when all are tokens: the prefix cache may hold the keys of the first ones. */
  readonly tokens: Uint32Array | undefined;
  /** Inputs, counted from the last, whose outputs are wanted: these are computed in any case. */
  readonly rows: number;
  /** Whether parts that were committed stay when a later one fails: a run's tokens have been handed over. Else all of the call goes. */
  readonly keepsParts: boolean;
  /** The low-rank adapter that computes it; undefined for the model alone. */
  readonly adapter: string | undefined;
}

/** Most scores of a call that cannot be cut (inputs × keys × heads): 64 Mi, which are 256 MiB on the device. */
export const MAX_UNCUT_SCORES = 64 * 1024 * 1024;

/** Most inputs of a call that cannot be cut, over no context. */
export function uncutInputs(heads: number): number {
  return Math.floor(Math.sqrt(MAX_UNCUT_SCORES / heads));
}

const NO_SLOTS = new Uint32Array(0);

/**
 * A forward resolved to physical slots, to be computed at once or in chunks. It is made when the call's turn has come; the pages it
 * names cannot change before the call is done, and keep their frames as long as calls of their inferlet are pending.
 */
export class ForwardPlan {
  readonly positions: Uint32Array;
  /** Inputs that need no computing any more: taken from the prefix cache, or computed. */
  done: number;
  /** Inputs after those, whose slots count as filled: they are being computed. */
  reserved = 0;
  /** Inputs that came from the prefix cache; the rest have slots. */
  readonly taken: number;
  readonly #prefix: PrefixRun | undefined;
  readonly #context: Context;
  readonly #slots: EmptySlot[];
  readonly #writes: Uint32Array;
  readonly #matrix: Uint8Array | 'causal';
  readonly #keepsParts: boolean;

  /**
   * @throws CallFault when a page is not held, the out-pages are too small, a position is past the model's context, the mask does not fit, or
   *   the call would take more of the device than one may (`limit-exceeded`; nobody has made room for it then).
   */
  constructor(space: PageSpace, request: ForwardRequest, config: Pick<ModelConfig, 'contextLength' | 'heads'>) {
    const { positions, inPages } = request;
    checkPositions(positions, config.contextLength);
    const pages = space.takePages(inPages, request.adapter);
    const keys = checkContext(space, pages);
    checkScores(request, keys, config.heads);
    this.positions = positions;
    this.#keepsParts = request.keepsParts;
    space.makeResident(pages.rest);
    const asked = prefixRequest(request);
    this.#prefix = asked && space.beginPrefix(asked, pages);
    this.taken = this.#prefix?.taken ?? 0;
    this.done = this.taken;
    try {
      const resolved = resolve(space, request, pages, this.#prefix);
      this.#slots = resolved.slots;
      this.#writes = resolved.writes;
      this.#context = resolved.context;
      this.#matrix = resolved.matrix;
    } catch (error) {
      this.#prefix?.revert();
      throw error;
    }
  }

  get left(): number {
    return this.positions.length - this.done;
  }

  /**
   * The next `count` inputs as the device wants them. Their slots count as filled from here on, so that the next call of the batch reads
   * them; `commit` or `rollback` follows. Those after them may begin before that.
   */
  begin(count: number, inputs: InputRows, output: OutputRequest): SequenceInput {
    const first = this.done + this.reserved;
    const from = first - this.taken;
    const to = from + count;
    const { slots } = this.#context;
    const contextCount = this.#context.count + from;
    const sequence: SequenceInput = {
      inputs,
      positions: count === this.positions.length ? this.positions : this.positions.subarray(first, first + count),
      context: contextCount === slots.length ? slots : slots.subarray(0, contextCount),
      mask:
        this.#matrix === 'causal'
          ? 'causal'
          : matrixRows(this.#matrix, this.positions.length - this.taken, this.#context.count, from, to),
      writes: count === this.#writes.length ? this.#writes : this.#writes.subarray(from, to),
      output,
    };
    this.reserved += count;
    for (let i = 0; i < count && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[from + i] as EmptySlot;
      fillSlot(page, slot, this.positions[first + i] as number);
    }
    if (inputs.kind === 'tokens') this.#prefix?.reserve(inputs.tokens);
    return sequence;
  }

  /**
   * The first `count` reserved inputs were computed. With the last input the call is done, and `rollback` does nothing any more.
   * @param picked their tokens, where these were not known when they began
   */
  commit(count = this.reserved, picked?: Uint32Array): void {
    this.done += count;
    this.reserved -= count;
    if (picked) this.#prefix?.reserve(picked);
    // The tree gets nothing of a call that may still be taken back: what it has, others may hold.
    if (this.#keepsParts || this.left === 0) this.#prefix?.commit();
    if (this.left === 0) this.#prefix?.keep();
  }

  /** The last `count` reserved inputs, whose tokens nobody knows yet, are not computed now. They may begin again. */
  retract(count: number): void {
    const end = this.done + this.reserved - this.taken;
    this.#unfill(end - count, end);
    this.reserved -= count;
  }

  /** The call ends here, before its last input: the out-pages are as they were, but for what a call that keeps its parts has committed. */
  rollback(): void {
    if (this.left === 0) return;
    this.#unfill(this.#keepsParts ? this.done - this.taken : 0, this.done + this.reserved - this.taken);
    this.reserved = 0;
    this.#prefix?.revert();
  }

  #unfill(from: number, end: number): void {
    for (let i = from; i < end && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[i] as EmptySlot;
      unfillSlot(page, slot);
    }
  }
}

/** Physical slots and visibility of the inputs that have to be computed. */
function resolve(space: PageSpace, request: ForwardRequest, pages: ContextPages, prefix: PrefixRun | undefined) {
  const { outPages, mask } = request;
  const positions = prefix ? request.positions.subarray(prefix.taken) : request.positions;
  // Before the context is gathered: an address that is both in and out may move to a copy here.
  const slots = outPages.length > 0 ? space.emptySlots(outPages, positions.length) : [];
  const context = gatherContext(space, prefix?.context ?? pages, smallest(positions), slots.length, mask !== undefined);
  const matrix = visibility(positions, context, mask);
  const writes = slots.length > 0 ? new Uint32Array(positions.length) : NO_SLOTS;
  const { pageSize } = space.pool;
  for (let i = 0; i < slots.length; i++) {
    const { page, slot } = slots[i] as EmptySlot;
    const physical = page.frame * pageSize + slot;
    writes[i] = physical;
    context.slots[context.count + i] = physical;
  }
  return { slots, writes, context, matrix };
}

/** What is asked of the prefix cache for a call; undefined for one that it does not concern. */
export function prefixRequest({
  positions,
  inPages,
  outPages,
  mask,
  tokens,
  rows,
  adapter,
}: ForwardRequest): PrefixRequest | undefined {
  if (!tokens || mask || outPages.length === 0) return undefined;
  return { inPages, outPages, positions, tokens, keep: Math.max(1, rows), causal: true, adapter };
}

/**
 * A call that can be cut has as many inputs at once as a batch takes; any other has all of them.
 * @throws CallFault `limit-exceeded`
 */
function checkScores({ positions, outPages, mask }: ForwardRequest, keys: number, heads: number): void {
  const inputs = positions.length;
  const scores = inputs * (keys + inputs) * heads;
  if (scores <= MAX_UNCUT_SCORES || isChunkable(outPages.length, positions, mask)) return;
  throw fault(
    'limit-exceeded',
    `${inputs} inputs over ${keys} slots are ${scores} scores of attention, and ${MAX_UNCUT_SCORES} is the limit of a call that cannot be cut: give it out-pages and rising positions, or split it`,
  );
}

function smallest(values: Uint32Array): number {
  let least = values[0] as number;
  for (let i = 1; i < values.length; i++) if ((values[i] as number) < least) least = values[i] as number;
  return least;
}

function checkPositions(positions: Uint32Array, contextLength: number): void {
  for (let i = 0; i < positions.length; i++) {
    if ((positions[i] as number) < contextLength) continue;
    throw fault(
      'context-overflow',
      `input ${i} is at position ${positions[i]}; the model's context of ${contextLength} tokens ends at ${contextLength - 1}`,
    );
  }
}
