import assert from 'node:assert/strict';
import { CallFault } from '../fault.ts';
import { copyTokens } from './memory.ts';
import { copyOf, type PlainPage, type PlainSlot } from './plain-pages.ts';
import { type Operation, PAGE_SIZE } from './schedule.ts';
import type { Actor, World } from './world.ts';

/**
 * The address that `pick` selects: an odd `pick` selects a page of the text. Other inferlets with the same text may
 * share that page, and must not see its changes.
 */
export function addressOf({ pages, text }: Actor, pick: number): number {
  const heldAddresses = [...pages.keys()];
  const candidates = pick % 2 === 0 || text.length === 0 ? heldAddresses : text;
  return candidates[(pick >> 1) % candidates.length] ?? 0;
}

/** The tag of the fault that refuses `action`; undefined when `action` succeeds. */
export function refusal(action: () => void): string | undefined {
  try {
    action();
    return undefined;
  } catch (error) {
    if (!(error instanceof CallFault)) throw error;
    assert.notEqual(error.error.tag, 'terminated');
    return error.error.tag;
  }
}

export function applySlotCopy(world: World, actor: Actor, operation: Extract<Operation, { kind: 'copy-slots' }>): void {
  const { space, pages } = actor;
  const { fromSlot, toSlot, count, shift } = operation;
  const [from, to] = [addressOf(actor, operation.from), addressOf(actor, operation.to)];
  const request = {
    source: from,
    sourceOffset: fromSlot,
    destination: to,
    destinationOffset: toSlot,
    count,
    shift,
  };
  const sourcePage = pages.get(from);
  const source = sourcePage && copyOf(sourcePage);
  const target = pages.get(to);
  const moved = source?.slots.slice(fromSlot, fromSlot + count) ?? [];
  const isLegal =
    fromSlot + count <= PAGE_SIZE &&
    toSlot + count <= PAGE_SIZE &&
    (shift === 0 || world.setting.rotates) &&
    moved.every((slot) => !slot || slot.position + shift >= 0);
  if (!source || !target || !isLegal) {
    assert.notEqual(
      refusal(() => space.copySlots(request)),
      undefined,
    );
    return;
  }
  if (!world.attempt(actor, 1, () => space.copySlots(request))) return;
  for (const [i, slot] of moved.entries()) {
    target.slots[toSlot + i] = slot && { ...slot, position: slot.position + shift };
    target.masked[toSlot + i] = source.masked[fromSlot + i] as boolean;
  }
}

export function applyTokenCopy(
  world: World,
  actor: Actor,
  operation: Extract<Operation, { kind: 'copy-tokens' }>,
): void {
  const { space, pages } = actor;
  if (pages.size === 0) return;
  const sources = operation.from.map((pick) => addressOf(actor, pick));
  const destinations = [...new Set(operation.into.map((pick) => addressOf(actor, pick)))];
  const filled: { slot: PlainSlot; masked: boolean }[] = [];
  for (const address of sources) {
    const { slots, masked } = pages.get(address) as PlainPage;
    for (const [i, slot] of slots.entries()) if (slot) filled.push({ slot, masked: masked[i] as boolean });
  }
  const { renumber } = operation;
  const positions = renumber === undefined ? [] : operation.indices.map((_, i) => renumber + i);
  const emptySlots: [PlainPage, number][] = [];
  for (const address of destinations) {
    const target = pages.get(address) as PlainPage;
    for (const [i, slot] of target.slots.entries()) if (!slot) emptySlots.push([target, i]);
  }
  const moved = operation.indices.map((index) => filled[index]);
  const hasShift = moved.some((token, i) => token && renumber !== undefined && token.slot.position !== positions[i]);
  const request = {
    sources: Uint32Array.from(sources),
    indices: Uint32Array.from(operation.indices),
    destinations: Uint32Array.from(destinations),
    positions: Uint32Array.from(positions),
  };
  const isLegal =
    moved.every((token) => token) && moved.length <= emptySlots.length && (!hasShift || world.setting.rotates);
  if (!isLegal) {
    assert.notEqual(
      refusal(() => copyTokens(space, request)),
      undefined,
    );
    return;
  }
  if (!world.attempt(actor, destinations.length, () => copyTokens(space, request))) return;
  for (const [i, token] of moved.entries()) {
    if (!token) continue;
    const [target, slot] = emptySlots[i] as [PlainPage, number];
    target.slots[slot] = { value: token.slot.value, position: positions[i] ?? token.slot.position };
    target.masked[slot] = token.masked;
  }
}
