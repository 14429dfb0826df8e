import type { InputRows, OutputRequest, SequenceInput } from '../../backends/backend.ts';
import type { PagesAhead } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { ContextPages, Mapping } from '../../memory/known-text.ts';
import { fillSlot, treeTenant, unfillSlot } from '../../memory/pool.ts';
import type { EmptySlot, PageSpace } from '../../memory/space.ts';
import type { PrefixPeek, PrefixRequest, PrefixRun } from '../../memory/space-prefix.ts';
import type { ModelConfig } from '../../models/config.ts';
import type { Mask } from '../../protocol/calls.ts';
import type { RemainingCall, StepBounds } from '../steps/step-bounds.ts';
import type { ModelContext } from './call.ts';
import { type Context, checkContext, gatherContext, matrixRows, visibility } from './visibility.ts';

/** The pages and inputs of a forward or a step, as its call gives them. */
export interface ForwardRequest {
  readonly positions: Uint32Array;
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly mask: Mask | undefined;
  /** The inputs' tokens; undefined unless all inputs are tokens. The prefix cache may have the keys and values of the first ones. */
  readonly tokens: Uint32Array | undefined;
  /** Number of last inputs whose outputs are wanted: the device computes them even when the prefix cache has them. */
  readonly rows: number;
  /** Number of last inputs whose logits are wanted. */
  readonly logits: number;
  /** True for a run, which has sent its tokens already: when a part fails, the parts before it stay. Otherwise the whole call is undone. */
  readonly keepsParts: boolean;
  /** The low-rank adapter that computes the forward; undefined for the model alone. */
  readonly adapter: string | undefined;
}

/** Maximum attention scores (inputs × keys × heads) of a call that cannot be cut. A backend that stores scores needs 256 MiB for so many. */
export const MAX_UNCUT_SCORES = 64 * 1024 * 1024;

/** Maximum inputs of a call that cannot be cut and has no context. */
export function uncutInputs(heads: number): number {
  return Math.floor(Math.sqrt(MAX_UNCUT_SCORES / heads));
}

const NO_SLOTS = new Uint32Array(0);

/** A page's frame after a part of a call. */
interface PageFrame {
  readonly mapping: Mapping;
  readonly frame: number;
}

/**
 * A forward resolved to physical slots, to be computed at once or in parts. The call makes its plan when its turn has come. No other call
 * changes the pages of the plan before the call is done. The pages keep their frames (places on the device) while calls of the inferlet are
 * pending, unless the inferlet is preempted between two parts of the call.
 */
export class ForwardPlan {
  readonly positions: Uint32Array;
  /** Number of first inputs that need no more computing: they came from the prefix cache, or have been computed. */
  doneInputs: number;
  /** Number of inputs after the done ones that are being computed; their slots count as filled. */
  reservedInputs = 0;
  /** Number of first inputs that came from the prefix cache. With out-pages, `#slots` has one slot for each of the other inputs. */
  readonly cachedInputs: number;
  readonly #prefix: PrefixRun | undefined;
  readonly #pages: ContextPages;
  readonly #context: Context;
  readonly #slots: EmptySlot[];
  readonly #writes: Uint32Array;
  readonly #matrix: Uint8Array | 'causal';
  readonly #keepsParts: boolean;
  readonly #space: PageSpace;
  readonly #outPages: Uint32Array;
  /** While inputs are left: the call's pages with their frames after the last part. The pages may leave the device before the next part. */
  #pageFrames: readonly PageFrame[] = [];

  /**
   * @throws CallFault when a page is not held, the out-pages are too small, a position is past the model's context, the mask does not fit,
   * or no step could compute the call (`limit-exceeded`; memory makes no room for such a call).
   */
  constructor(
    space: PageSpace,
    request: ForwardRequest,
    config: Pick<ModelConfig, 'contextLength' | 'heads'>,
    bounds?: StepBounds,
  ) {
    const { positions, inPages } = request;
    checkPositions(positions, config.contextLength);
    const pages = space.takePages(inPages, request.adapter);
    const keys = checkContext(space, pages);
    checkScores(request, keys, config.heads);
    bounds?.check(
      { inputs: positions.length, context: keys, outputs: request.logits },
      isChunkable(request.outPages.length, positions, request.mask),
    );
    this.positions = positions;
    this.#space = space;
    this.#outPages = request.outPages;
    this.#pages = pages;
    this.#keepsParts = request.keepsParts;
    space.makeResident(pages.rest);
    const cacheRequest = prefixRequest(request);
    this.#prefix = cacheRequest && space.beginPrefix(cacheRequest, pages);
    this.cachedInputs = this.#prefix?.cachedInputs ?? 0;
    this.doneInputs = this.cachedInputs;
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

  get remainingInputs(): number {
    return this.positions.length - this.doneInputs;
  }

  /** The sizes of the inputs that are left. @param outputs number of the call's last inputs for which logits are computed */
  remaining(outputs: number): RemainingCall {
    const inputs = this.remainingInputs;
    const context = this.#context.count + this.doneInputs - this.cachedInputs;
    return { inputs, context, outputs: Math.min(outputs, inputs) };
  }

  /**
   * Returns the next `count` inputs in the device's form. Their slots count as filled from here on, so that the next call of the batch reads them.
   * The caller must then call `commit` or `rollback`. On a backend that works ahead, it may begin further inputs before that.
   * @throws CallHeld or CallFault when pages have left the device since the last part and find no room; then nothing has changed
   */
  begin(count: number, inputs: InputRows, output: OutputRequest): SequenceInput {
    this.#settle();
    const firstInput = this.doneInputs + this.reservedInputs;
    const from = firstInput - this.cachedInputs;
    const to = from + count;
    const { slots } = this.#context;
    const contextCount = this.#context.count + from;
    const sequence: SequenceInput = {
      inputs,
      positions:
        count === this.positions.length ? this.positions : this.positions.subarray(firstInput, firstInput + count),
      context: contextCount === slots.length ? slots : slots.subarray(0, contextCount),
      mask:
        this.#matrix === 'causal'
          ? 'causal'
          : matrixRows(this.#matrix, this.positions.length - this.cachedInputs, this.#context.count, from, to),
      writes: count === this.#writes.length ? this.#writes : this.#writes.subarray(from, to),
      output,
    };
    this.reservedInputs += count;
    for (let i = 0; i < count && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[from + i] as EmptySlot;
      fillSlot(page, slot, this.positions[firstInput + i] as number);
    }
    if (inputs.kind === 'tokens') this.#prefix?.reserve(inputs.tokens);
    return sequence;
  }

  /**
   * Marks the first `count` reserved inputs as computed. After the last input the call is done, and `rollback` does nothing.
   * @param picked tokens of these inputs, if they were not known when the inputs began
   */
  commit(count = this.reservedInputs, picked?: Uint32Array): void {
    this.doneInputs += count;
    this.reservedInputs -= count;
    if (picked) this.#prefix?.reserve(picked);
    if (this.#keepsParts || this.remainingInputs === 0) this.#prefix?.commit();
    else this.#prefix?.give();
    if (this.remainingInputs === 0) this.#prefix?.keep();
    else if (!this.#keepsParts) this.#pageFrames = this.#usedPageFrames();
  }

  /** The pages that the next parts read and write, with their frames now. A run needs none: it makes a new plan when its pages have moved. */
  #usedPageFrames(): PageFrame[] {
    const { text, rest } = this.#prefix?.context ?? this.#pages;
    const mappings = new Set([...text.mappings, ...rest, ...this.#space.peekAll(this.#outPages)]);
    const pageFrames = Array.from(mappings, (mapping) => ({ mapping, frame: mapping.page.frame }));
    return pageFrames.filter(({ frame }) => frame >= 0);
  }

  /** Brings back the pages that have left the device since the last part, and replaces the slots of their former frames by the new ones. */
  #settle(): void {
    const pageFrames = this.#pageFrames;
    if (pageFrames.length === 0) return;
    this.#space.makeResident(pageFrames.map(({ mapping }) => mapping));
    this.#pageFrames = [];
    const newFrames = new Map<number, number>();
    for (const { mapping, frame } of pageFrames)
      if (mapping.page.frame !== frame) newFrames.set(frame, mapping.page.frame);
    if (newFrames.size === 0) return;
    const { pageSize } = this.#space.pool;
    const follow = (slots: Uint32Array, count: number): void => {
      for (let i = 0; i < count; i++) {
        const slot = slots[i] as number;
        const frame = newFrames.get(Math.floor(slot / pageSize));
        if (frame !== undefined) slots[i] = frame * pageSize + (slot % pageSize);
      }
    };
    follow(this.#context.slots, this.#context.count + this.#writes.length);
    follow(this.#writes, this.#writes.length);
  }

  /** Gives up the last `count` reserved inputs, whose tokens are not known yet. They may begin again. */
  retract(count: number): void {
    const end = this.doneInputs + this.reservedInputs - this.cachedInputs;
    this.#unfill(end - count, end);
    this.reservedInputs -= count;
  }

  /** Undoes a call with inputs left: its out-pages are then as before the call. A call that keeps its parts keeps the committed ones. */
  rollback(): void {
    if (this.remainingInputs === 0) return;
    this.#unfill(
      this.#keepsParts ? this.doneInputs - this.cachedInputs : 0,
      this.doneInputs + this.reservedInputs - this.cachedInputs,
    );
    this.reservedInputs = 0;
    this.#prefix?.revert();
  }

  /** Keys in the prefix cache of the whole pages that the call computes next; `tokens` are all inputs of the call. */
  keysAhead(tokens: Uint32Array): readonly number[] {
    return this.#prefix?.keysAhead(tokens.subarray(this.doneInputs)) ?? [];
  }

  #unfill(from: number, end: number): void {
    for (let i = from; i < end && this.#slots.length > 0; i++) {
      const { page, slot } = this.#slots[i] as EmptySlot;
      if (!this.#prefix?.hasGiven(page)) unfillSlot(page, slot);
    }
  }
}

/** Physical slots and visibility of the inputs to compute. */
function resolve(space: PageSpace, request: ForwardRequest, pages: ContextPages, prefix: PrefixRun | undefined) {
  const { outPages, mask } = request;
  const positions = prefix ? request.positions.subarray(prefix.cachedInputs) : request.positions;
  // Take the slots before the context: `emptySlots` may move an address that is both in and out to a copy of its page.
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

/** The request to the prefix cache; undefined for a call that cannot use it. */
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
  // The last input is always computed, even if no output is wanted: a step needs an input.
  return { inPages, outPages, positions, tokens, keep: Math.max(1, rows), causal: true, adapter };
}

/**
 * Bounds the scores of a call that cannot be cut: one step computes all its inputs. For other calls, the limits of a batch bound each step.
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

/**
 * Describes a call to the batcher before the call has a plan: the number of inputs that the call must compute, and the pages that it will compute and
 * other calls may then take. Inputs in the prefix cache do not count, so that they take no room in a batch. The description stays the same during a
 * round of the engine, which chooses at most one batch. The call makes its plan later, and may then find a little more or less in the cache.
 */
export class Unplanned {
  readonly #space: PageSpace;
  readonly #model: ModelContext;
  #round = -1;
  #peek: PrefixPeek | undefined;

  constructor(space: PageSpace, model: ModelContext) {
    this.#space = space;
    this.#model = model;
  }

  /**
   * Number of inputs that the call must compute.
   * @param count number of all inputs of the call
   * @param request returns undefined when the call is malformed, or when its inputs do not exist yet
   */
  inputs(count: number, request: () => ForwardRequest | undefined): number {
    return count - (this.#peekOnce(count, request)?.cachedInputs ?? 0);
  }

  /**
   * The sizes of the inputs to compute. The in-pages bound the context, whose slots are counted when the call makes its plan.
   * @param inputs as `inputs` returned
   */
  remaining(inputs: number, inPages: number, outputs: number): RemainingCall {
    return { inputs, context: inPages * this.#space.pool.pageSize, outputs };
  }

  /** Pages that the call will compute and that other calls may then take; undefined when they are not known. See `inputs` for the parameters. */
  pagesAhead(
    count: number,
    adapter: string | undefined,
    request: () => ForwardRequest | undefined,
  ): PagesAhead | undefined {
    const peek = this.#peekOnce(count, request);
    if (!peek) return undefined;
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: peek.keys(), takes: peek.takes, begun: false };
  }

  /** Like `pagesAhead`, for a call that has a plan: earlier batches computed a part of the call. @param tokens all inputs of the call */
  pagesLeft(plan: ForwardPlan, tokens: Uint32Array, adapter: string | undefined): PagesAhead {
    const { pageSize } = this.#space.pool;
    return { scope: this.#scope(adapter), pageTokens: pageSize, keys: plan.keysAhead(tokens), takes: 0, begun: true };
  }

  /** Looks up the call in the prefix cache, once in each round. */
  #peekOnce(count: number, request: () => ForwardRequest | undefined): PrefixPeek | undefined {
    // A call of at most one page of inputs is not looked up: its last input is always computed, so the cache could spare it
    // less than one page.
    if (count <= this.#space.pool.pageSize) return undefined;
    if (this.#round !== this.#model.round) {
      this.#round = this.#model.round;
      const forwardRequest = request();
      const cacheRequest = forwardRequest && prefixRequest(forwardRequest);
      this.#peek = cacheRequest && this.#space.peekPrefix(cacheRequest);
    }
    return this.#peek;
  }

  /** Name of the scope in which calls share pages: the same tenant and the same adapter. */
  #scope(adapter: string | undefined): string {
    return treeTenant(this.#space.owner.tenant, adapter);
  }
}

/**
 * True when a cut between any two inputs of a call does not change its result: its keys are kept (`outPages`), and no input sees a later
 * one. The check looks at the request only, because it runs while a batch is chosen. A malformed mask is refused later, with its cause.
 */
export function isChunkable(outPages: number, positions: Uint32Array, mask: Mask | undefined): boolean {
  if (outPages === 0) return false;
  return mask ? seesNothingLater(mask, positions.length) : isSorted(positions);
}

/** An inferred mask shows keys of smaller positions, so in rising order no input sees a later one. */
function isSorted(positions: Uint32Array): boolean {
  for (let i = 1; i < positions.length; i++) if ((positions[i] as number) < (positions[i - 1] as number)) return false;
  return true;
}

/** The last `inputs` columns of an explicit mask are the inputs. The runs of a row are hidden and visible in turn. */
function seesNothingLater({ runs, rowLengths }: Mask, inputs: number): boolean {
  let run = 0;
  for (let row = 0; row < rowLengths.length; row++) {
    let width = 0;
    let visibleEnd = 0;
    const end = run + (rowLengths[row] as number);
    for (let r = run; r < end && r < runs.length; r++) {
      const length = runs[r] as number;
      width += length;
      if ((r - run) % 2 === 1 && length > 0) visibleEnd = width;
    }
    run = end;
    if (visibleEnd > width - inputs + row + 1) return false;
  }
  return true;
}
