import type { InputRows, OutputRequest, SequenceInput } from '../backends/backend.ts';
import { fault } from '../memory/fault.ts';
import { fillSlot } from '../memory/pool.ts';
import type { EmptySlot, PageSpace } from '../memory/space.ts';
import type { Mask } from '../protocol/calls.ts';
import { type Context, gatherContext, isLowerTriangular, matrixRows, visibility } from './visibility.ts';

/** What a forward or a step asks of the page table. */
export interface ForwardRequest {
  readonly positions: Uint32Array;
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly mask: Mask | undefined;
}

const NO_SLOTS = new Uint32Array(0);

/**
 * A forward resolved to physical slots, to be computed at once or in chunks. It is made when the call's turn has come; the pages it
 * names cannot change before the call is done.
 */
export class ForwardPlan {
  readonly positions: Uint32Array;
  /** Inputs computed so far. */
  done = 0;
  #context: Context;
  #slots: EmptySlot[];
  #writes: Uint32Array;
  #matrix: Uint8Array | 'causal';
  #chunkable: boolean | undefined;

  /** @throws CallFault when a page is not held, the out-pages are too small, a position is past the model's context, or the mask does not fit. */
  constructor(space: PageSpace, request: ForwardRequest, contextLength: number) {
    const { positions, inPages, outPages, mask } = request;
    this.positions = positions;
    const inputs = positions.length;
    checkPositions(positions, contextLength);
    // Before the context is gathered: an address that is both in and out may move to a copy here.
    this.#slots = outPages.length > 0 ? space.emptySlots(outPages, inputs) : [];
    this.#context = gatherContext(space, inPages, smallest(positions), this.#slots.length, mask !== undefined);
    this.#matrix = visibility(positions, this.#context, mask);
    this.#writes = this.#slots.length > 0 ? new Uint32Array(inputs) : NO_SLOTS;
    const { pageSize } = space.pool;
    for (let i = 0; i < this.#slots.length; i++) {
      const { page, slot } = this.#slots[i] as EmptySlot;
      const physical = page.index * pageSize + slot;
      this.#writes[i] = physical;
      this.#context.slots[this.#context.count + i] = physical;
    }
  }

  get left(): number {
    return this.positions.length - this.done;
  }

  /** Whether the call gives the same result when cut: its keys are kept, and no input sees a later one. */
  get chunkable(): boolean {
    this.#chunkable ??=
      this.#writes.length > 0 &&
      (this.#matrix === 'causal' || isLowerTriangular(this.#matrix, this.positions.length, this.#context.count));
    return this.#chunkable;
  }

  /** The next `count` inputs as the device wants them. */
  sequence(count: number, inputs: InputRows, output: OutputRequest): SequenceInput {
    const from = this.done;
    const to = from + count;
    const whole = from === 0 && count === this.positions.length;
    const { slots } = this.#context;
    const contextCount = this.#context.count + from;
    return {
      inputs,
      positions: whole ? this.positions : this.positions.subarray(from, to),
      context: contextCount === slots.length ? slots : slots.subarray(0, contextCount),
      mask:
        this.#matrix === 'causal'
          ? 'causal'
          : matrixRows(this.#matrix, this.positions.length, this.#context.count, from, to),
      writes: whole ? this.#writes : this.#writes.subarray(from, to),
      output,
    };
  }

  /** The next `count` inputs were computed: their slots are filled. */
  commit(count: number): void {
    if (this.#slots.length > 0) {
      for (let i = this.done; i < this.done + count; i++) {
        const { page, slot } = this.#slots[i] as EmptySlot;
        fillSlot(page, slot, this.positions[i] as number);
      }
    }
    this.done += count;
  }
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
