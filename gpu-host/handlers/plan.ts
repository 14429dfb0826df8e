import type { InputRows, OutputRequest, SequenceInput } from '../backends/backend.ts';
import { fault } from '../memory/fault.ts';
import { fillSlot, unfillSlot } from '../memory/pool.ts';
import type { EmptySlot, PageSpace } from '../memory/space.ts';
import type { PrefixRequest, PrefixRun } from '../memory/space-prefix.ts';
import type { Mask } from '../protocol/calls.ts';
import { type Context, gatherContext, matrixRows, visibility } from './visibility.ts';

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
  /** Inputs after those that are being computed. */
  reserved = 0;
  /** Inputs that came from the prefix cache; the rest have slots. */
  readonly #taken: number;
  readonly #prefix: PrefixRun | undefined;
  readonly #context: Context;
  readonly #slots: EmptySlot[];
  readonly #writes: Uint32Array;
  readonly #matrix: Uint8Array | 'causal';

  /** @throws CallFault when a page is not held, the out-pages are too small, a position is past the model's context, or the mask does not fit. */
  constructor(space: PageSpace, request: ForwardRequest, contextLength: number) {
    const { positions, inPages } = request;
    checkPositions(positions, contextLength);
    this.positions = positions;
    space.makeResident(inPages);
    const asked = prefixRequest(request);
    this.#prefix = asked && space.beginPrefix(asked);
    this.#taken = this.#prefix?.taken ?? 0;
    this.done = this.#taken;
    try {
      const resolved = resolve(space, request, this.#prefix);
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
   * them; `commit` or `rollback` follows.
   */
  begin(count: number, inputs: InputRows, output: OutputRequest): SequenceInput {
    const from = this.done - this.#taken;
    const to = from + count;
    const { slots } = this.#context;
    const contextCount = this.#context.count + from;
    const sequence: SequenceInput = {
      inputs,
      positions:
        count === this.positions.length ? this.positions : this.positions.subarray(this.done, this.done + count),
      context: contextCount === slots.length ? slots : slots.subarray(0, contextCount),
      mask:
        this.#matrix === 'causal'
          ? 'causal'
          : matrixRows(this.#matrix, this.positions.length - this.#taken, this.#context.count, from, to),
      writes: count === this.#writes.length ? this.#writes : this.#writes.subarray(from, to),
      output,
    };
    this.reserved = count;
    for (let i = 0; i < count && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[from + i] as EmptySlot;
      fillSlot(page, slot, this.positions[this.done + i] as number);
    }
    if (inputs.kind === 'tokens') this.#prefix?.reserve(inputs.tokens);
    return sequence;
  }

  /** The reserved inputs were computed. */
  commit(): void {
    this.#prefix?.commit();
    this.done += this.reserved;
    this.reserved = 0;
  }

  /** The call ends here: the slots of reserved inputs are empty again, and when nothing was computed the out-pages are as they were. */
  rollback(): void {
    const from = this.done - this.#taken;
    for (let i = 0; i < this.reserved && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[from + i] as EmptySlot;
      unfillSlot(page, slot);
    }
    this.reserved = 0;
    this.#prefix?.revert();
  }
}

/** Physical slots and visibility of the inputs that have to be computed. */
function resolve(space: PageSpace, request: ForwardRequest, prefix: PrefixRun | undefined) {
  const { inPages, outPages, mask } = request;
  const positions = prefix ? request.positions.subarray(prefix.taken) : request.positions;
  // Before the context is gathered: an address that is both in and out may move to a copy here.
  const slots = outPages.length > 0 ? space.emptySlots(outPages, positions.length) : [];
  const context = gatherContext(
    space,
    prefix?.context ?? inPages,
    smallest(positions),
    slots.length,
    mask !== undefined,
  );
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
}: ForwardRequest): PrefixRequest | undefined {
  if (!tokens || mask || outPages.length === 0) return undefined;
  return { inPages, outPages, positions, tokens, keep: Math.max(1, rows), causal: true };
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
