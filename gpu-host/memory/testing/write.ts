import assert from 'node:assert/strict';
import { CallFault } from '../fault.ts';
import type { Mapping } from '../known-text.ts';
import { fillSlot, unfillSlot } from '../pool.ts';
import type { EmptySlot } from '../space.ts';
import type { PrefixRun } from '../space-prefix.ts';
import type { ArrayDevice } from './array-device.ts';
import { forwardValues, type PlainPage, visibleSlots } from './plain-pages.ts';
import type { Actor, World } from './world.ts';

/** A forward over pages: its inputs' positions are `first`, `first + 1`, … */
export interface WriteShape {
  readonly inPages: readonly number[];
  readonly outPages: readonly number[];
  readonly tokens: readonly number[];
  readonly first: number;
  /** Number of last inputs that must be computed, and not taken from the prefix tree. */
  readonly keep: number;
  /** The adapter that computes; undefined for the model alone. */
  readonly adapter: string | undefined;
}

/** A forward with reserved slots, as the engine holds it from the preparation of a batch to the batch's end. */
export interface PreparedWrite {
  /** Computes the forward over the slots that its preparation found and reserved. */
  compute(): void;
  /** Fails the step. */
  revert(): void;
}

/** Prepares a forward as the handlers do; the oracle executes it at once. Undefined when it was refused. */
export function prepareWrite(world: World, actor: Actor, shape: WriteShape): PreparedWrite | undefined {
  const { space, pages } = actor;
  const positions = shape.tokens.map((_, i) => shape.first + i);
  const inPages = Uint32Array.from(shape.inPages);
  const outPages = Uint32Array.from(shape.outPages);
  const emptySlots: [PlainPage, number][] = [];
  for (const address of outPages) {
    const page = pages.get(address) as PlainPage;
    for (const [i, slot] of page.slots.entries()) if (!slot) emptySlots.push([page, i]);
  }
  if (emptySlots.length < shape.tokens.length) {
    assert.throws(() => space.emptySlots(outPages, shape.tokens.length), isOverflow);
    return undefined;
  }
  let prepared: PreparedWrite | undefined;
  const done = world.attempt(actor, outPages.length, () => {
    prepared = prepare(world, actor, { ...shape, positions, inPages, outPages });
  });
  if (!done) return undefined;
  const context = visibleSlots(shape.inPages.map((address) => pages.get(address) as PlainPage));
  for (const [i, value] of forwardValues(context, shape.tokens, positions, shape.adapter).entries()) {
    const [page, slot] = emptySlots[i] as [PlainPage, number];
    page.slots[slot] = { position: positions[i] as number, value };
  }
  return prepared;
}

interface ResolvedShape {
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly tokens: readonly number[];
  readonly positions: readonly number[];
  readonly keep: number;
  readonly adapter: string | undefined;
}

function prepare(world: World, actor: Actor, shape: ResolvedShape): PreparedWrite {
  const { space } = actor;
  const { inPages, outPages, tokens, positions, keep, adapter } = shape;
  const pages = space.takePages(inPages, adapter);
  world.counts.known += pages.text.mappings.length;
  const asked = { inPages, outPages, positions: Uint32Array.from(positions), tokens: Uint32Array.from(tokens), keep };
  const run = space.beginPrefix({ ...asked, causal: true, adapter }, pages);
  const cachedInputs = run?.cachedInputs ?? 0;
  assert.ok(cachedInputs <= Math.max(0, tokens.length - keep));
  world.counts.taken += cachedInputs;
  const { text, rest } = run?.context ?? pages;
  const { free } = space.pool;
  const slots = space.emptySlots(outPages, tokens.length - cachedInputs);
  space.makeResident(rest);
  if (run) assert.equal(space.pool.free, free, 'after beginPrefix a call needs no more memory');
  const contextSlots = gather([...text.mappings, ...rest]);
  const knownSlots = text.slots(0).subarray(0, text.mappings.length * space.pool.pageSize);
  for (const [i, slot] of knownSlots.entries())
    assert.equal(slot, contextSlots[i]?.slot, 'the known slots are those of the pages');
  for (const [i, { page, slot }] of slots.entries()) fillSlot(page, slot, positions[cachedInputs + i] as number);
  run?.reserve(Uint32Array.from(tokens.slice(cachedInputs)));
  return new ReservedWrite(
    world.kit.device,
    run,
    slots,
    contextSlots,
    tokens.slice(cachedInputs),
    positions.slice(cachedInputs),
    adapter,
  );
}

/** Physical slots and positions of a call's context. */
function gather(context: readonly Mapping[]): { slot: number; position: number }[] {
  const seen: { slot: number; position: number }[] = [];
  for (const { page, masked } of context) {
    for (let slot = 0; slot < page.positions.length; slot++) {
      if ((page.filled & ~masked & (1 << slot)) === 0) continue;
      seen.push({ slot: page.frame * page.positions.length + slot, position: page.positions[slot] as number });
    }
  }
  return seen;
}

class ReservedWrite implements PreparedWrite {
  readonly #device: ArrayDevice;
  readonly #run: PrefixRun | undefined;
  readonly #slots: readonly EmptySlot[];
  /** Physical slots at the time of preparation. */
  readonly #writes: readonly number[];
  readonly #context: readonly { slot: number; position: number }[];
  readonly #tokens: readonly number[];
  readonly #positions: readonly number[];
  readonly #adapter: string | undefined;

  constructor(
    device: ArrayDevice,
    run: PrefixRun | undefined,
    slots: readonly EmptySlot[],
    context: readonly { slot: number; position: number }[],
    tokens: readonly number[],
    positions: readonly number[],
    adapter: string | undefined,
  ) {
    this.#adapter = adapter;
    this.#device = device;
    this.#run = run;
    this.#slots = slots;
    this.#writes = slots.map(({ page, slot }) => page.frame * page.positions.length + slot);
    this.#context = context;
    this.#tokens = tokens;
    this.#positions = positions;
  }

  compute(): void {
    const context = this.#context.map(({ slot, position }) => ({ position, value: this.#device.read(slot).value }));
    for (const [i, value] of forwardValues(context, this.#tokens, this.#positions, this.#adapter).entries()) {
      this.#device.write(this.#writes[i] as number, value, this.#positions[i] as number);
    }
    this.#run?.commit();
    this.#run?.keep();
  }

  revert(): void {
    for (const { page, slot } of this.#slots) unfillSlot(page, slot);
    this.#run?.revert();
  }
}

function isOverflow(error: unknown): boolean {
  return error instanceof CallFault && error.error.tag === 'context-overflow';
}
