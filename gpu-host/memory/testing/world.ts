import assert from 'node:assert/strict';
import { isNewer } from '#scheduler/policies/preemption.ts';
import { CallFault } from '../fault.ts';
import type { Lease } from '../leases.ts';
import type { FrozenPage, PageSnapshot } from '../pool.ts';
import { holders, type Page, PRESENT_MS } from '../pool.ts';
import type { PageSpace } from '../space.ts';
import { addressOf, applySlotCopy, applyTokenCopy, refusal } from './copies.ts';
import { applyLease, checkLeases } from './leasing.ts';
import { makeMemory, type TestMemory } from './memory.ts';
import { copyOf, emptyPage, type PlainPage, samePage } from './plain-pages.ts';
import { ACTORS, type LeaseOperation, type Operation, PAGE_SIZE, type Setting, type WriteCall } from './schedule.ts';
import { type PreparedWrite, prepareWrite, type WriteShape } from './write.ts';

/** Maximum pages that a batch may reserve of a tenant's quota: four calls with three whole pages each. */
const MAX_RESERVED_PAGES = 12;

/** An inferlet: its space, and the oracle's content of its addresses. */
export interface Actor {
  readonly space: PageSpace;
  readonly pages: Map<number, PlainPage>;
  /** Addresses of the text that the inferlet continues. */
  text: number[];
  nextAddress: number;
  busy: boolean;
}

export interface Export {
  readonly snapshot: PageSnapshot;
  readonly pages: readonly PlainPage[];
  lease?: Lease;
}

/**
 * Memory beside an oracle that shares nothing, caches nothing and swaps nothing. The content of an address must not depend on evictions and
 * swaps. Every refusal is checked against the oracle.
 */
export class World {
  readonly kit: TestMemory;
  readonly setting: Setting;
  readonly actors: (Actor | undefined)[] = new Array(ACTORS).fill(undefined);
  readonly exports = new Map<number, Export>();
  /** Totals. `taken`: inputs that came from the prefix tree; `known`: pages of known texts that calls found. */
  readonly counts = { operations: 0, refused: 0, terminated: 0, taken: 0, known: 0, pins: 0 };
  /** The clock of leases. */
  nowMs = 1;
  #requester: PageSpace | undefined;
  /** Spaces that memory ended and that are not closed yet. */
  readonly #endedSpaces: PageSpace[] = [];
  #arrivals = 0;

  constructor(setting: Setting) {
    this.setting = setting;
    this.kit = makeMemory({
      pages: setting.pages,
      pageSize: PAGE_SIZE,
      prefixCache: setting.prefixCache,
      rotates: setting.rotates,
      swapMemoryPages: setting.swapMemoryPages,
      swapDiskPages: setting.swapDiskPages,
      ended: (space) => this.#noteEnded(space),
      now: () => this.nowMs,
    });
  }

  apply(operation: Operation): void {
    this.counts.operations++;
    this.#closeEnded();
    switch (operation.kind) {
      case 'batch':
        this.#batch(operation);
        break;
      case 'unexport':
        this.#unexport(operation.name);
        break;
      case 'end':
        this.#end(operation.who);
        break;
      case 'pin':
      case 'unpin':
      case 'expect':
      case 'prefetch':
      case 'demote':
      case 'pass':
        applyLease(this, this.actor(operation.who), operation);
        break;
      default:
        this.#requester = undefined;
        this.#single(this.actor(operation.who), operation);
    }
    this.kit.memory.check();
  }

  actor(who: number): Actor {
    const existing = this.actors[who];
    if (existing) return existing;
    const siblings = this.setting.families ? 2 : 1;
    const actor: Actor = {
      space: this.kit.open({
        arrival: Math.floor(this.#arrivals++ / siblings),
        maxPages: this.setting.maxPages,
        tenant: `tenant-${who % this.setting.tenants}`,
        tenantPages: { pages: this.setting.tenantPages, readAt: 0 },
      }),
      pages: new Map(),
      text: [],
      nextAddress: 1,
      busy: false,
    };
    this.actors[who] = actor;
    return actor;
  }

  /**
   * Runs an action that may be refused for lack of memory.
   * @param morePages maximum pages that the action adds to those of the inferlet
   * @returns true when the action succeeded
   */
  attempt(actor: Actor, morePages: number, action: () => void): boolean {
    this.#requester = actor.space;
    const mayNotFit = this.#mayNotFit(actor.space, morePages);
    try {
      action();
      return true;
    } catch (error) {
      if (!(error instanceof CallFault)) throw error;
      const { tag } = error.error;
      if (tag === 'terminated') {
        assert.ok(
          actor.space.terminationCause !== undefined,
          'the call answered terminated, but its inferlet was not ended',
        );
      } else {
        assert.equal(tag, 'limit-exceeded', error.message);
        assert.ok(mayNotFit, `refused a request that fits: ${error.message}`);
        this.counts.refused++;
      }
      return false;
    } finally {
      this.#requester = undefined;
      this.kit.memory.check();
    }
  }

  /** Compares all content and all references with the oracle. */
  compare(): void {
    const { memory } = this.kit;
    memory.audit();
    checkLeases(this);
    for (const actor of this.actors) {
      if (!actor) continue;
      // Every expected address is held (`peek` below checks that), and there are no others.
      const addresses = [...actor.space.held.values()].reduce((total, count) => total + count, 0);
      assert.equal(addresses, actor.pages.size);
      assert.ok(actor.space.heldPages <= Math.min(this.setting.maxPages, this.setting.pages));
      for (const [address, expected] of actor.pages) this.#comparePage(actor.space.peek(address), expected);
    }
    for (const { tenant, pages, maxPages } of this.kit.tenants.stats(ACTORS)) {
      assert.equal(pages, this.#heldBy(tenant).size, `the pages of ${tenant}`);
      assert.ok(maxPages === null || pages <= maxPages, `${tenant} holds ${pages} pages of ${maxPages}`);
    }
    for (const { snapshot, pages } of this.exports.values()) {
      for (const [i, expected] of pages.entries()) this.#comparePage(snapshot.pages[i] as FrozenPage, expected);
    }
  }

  #closeEnded(): void {
    for (const space of this.#endedSpaces.splice(0)) this.kit.memory.closeSpace(space);
  }

  /** Ends all inferlets and exports; no page may remain. */
  close(): void {
    const { memory, swap } = this.kit;
    this.#closeEnded();
    for (const [who] of this.actors.entries()) this.#end(who);
    for (const name of [...this.exports.keys()]) this.#unexport(name);
    this.compare();
    const { free, cached, total } = memory.pool.counts();
    assert.equal(free + cached, total);
    assert.equal(memory.snapshots.leases.pages, 0);
    // An inferlet that takes the whole pool drives all cached prefixes out.
    this.nowMs += PRESENT_MS;
    const last = this.kit.open({ arrival: this.#arrivals++ });
    last.allocate(1, total);
    memory.closeSpace(last);
    memory.audit();
    assert.equal(memory.pool.free, total);
    swap?.check();
    swap?.close();
  }

  /** Pages of a tenant, collected from all holders. */
  #heldBy(tenant: string): Set<Page> {
    const held = new Set<Page>();
    for (const { owner, held: own } of this.kit.memory.spaces)
      if (owner.tenant === tenant) for (const page of own.keys()) held.add(page);
    for (const { snapshot } of this.exports.values())
      if (snapshot.tenant === tenant) for (const { page } of snapshot.pages) held.add(page);
    return held;
  }

  #noteEnded(space: PageSpace): void {
    const requester = this.#requester;
    assert.ok(requester, 'an inferlet was ended without a request for memory');
    this.counts.terminated++;
    // Leases of another tenant within its share stay.
    const { leases } = this.kit.memory.snapshots;
    assert.ok(this.setting.tenants > 1 || leases.pages === 0, 'an inferlet was ended while leases pinned pages');
    if (space === requester) {
      const preceding = [...this.kit.memory.spaces].filter(
        (other) => other !== space && (other.owner.tenant !== space.owner.tenant || isNewer(space, other)),
      );
      assert.ok(
        preceding.some(({ held }) => [...held.keys()].some((page) => page.frame >= 0)),
        'an inferlet was ended, though no older one and no other tenant holds pages',
      );
    } else if (space.owner.tenant === requester.owner.tenant)
      assert.ok(isNewer(space, requester), 'an inferlet older than the requester was ended');
    const who = this.actors.findIndex((actor) => actor?.space === space);
    assert.ok(who >= 0);
    this.actors[who] = undefined;
    // Close in a later turn, as the engine does.
    this.#endedSpaces.push(space);
  }

  /** True when the request may pass a limit, or need frames of exported pages for which swap may have no room. */
  #mayNotFit(space: PageSpace, morePages: number): boolean {
    const { pages, maxPages, swapMemoryPages, tenantPages } = this.setting;
    const { held } = this.kit.memory.snapshots;
    // Other tenants keep what they hold within their shares.
    if (this.setting.tenants > 1 && space.heldPages + morePages > pages / this.setting.tenants) return true;
    const hasAmpleSwap = swapMemoryPages >= 1000;
    const exportedPages = [...held.keys()].filter((page) => page.frame >= 0 && !space.held.has(page));
    const maxUnavailable = hasAmpleSwap ? 0 : exportedPages.length;
    if (space.heldPages + morePages > Math.min(maxPages, pages - maxUnavailable)) return true;
    // A write to a page that the tenant's other inferlets or exports share makes a copy, so each held page may count again.
    const tenantHeld = this.#heldBy(space.owner.tenant).size + MAX_RESERVED_PAGES;
    return tenantPages !== null && tenantHeld + morePages + space.heldPages > tenantPages;
  }

  #single(actor: Actor, operation: Exclude<Operation, LeaseOperation | { kind: 'batch' | 'unexport' | 'end' }>): void {
    const { space, pages } = actor;
    const at = (pick: number): number => addressOf(actor, pick);
    const page = (address: number): PlainPage => pages.get(address) as PlainPage;
    switch (operation.kind) {
      case 'allocate':
        this.allocate(actor, operation.count);
        return;
      case 'free': {
        const chosen = operation.picks.map(at);
        const distinct = new Set(chosen).size === chosen.length;
        const legal = distinct && chosen.every((address) => pages.has(address));
        assert.equal(refusal(() => space.free(Uint32Array.from(chosen))) === undefined, legal);
        if (distinct) for (const address of chosen) pages.delete(address);
        actor.text = actor.text.every((address) => pages.has(address)) ? actor.text : [];
        return;
      }
      case 'share':
        if (pages.size > 0) this.#share(actor, operation.picks.map(at));
        return;
      case 'new-text':
        actor.text = [];
        return;
      case 'fork-text':
        actor.text = this.#share(actor, actor.text);
        return;
      case 'mask': {
        const address = at(operation.pick);
        const legal = pages.has(address) && operation.bits < 2 ** PAGE_SIZE;
        assert.equal(refusal(() => space.mask(address, operation.bits)) === undefined, legal);
        if (!legal) return;
        for (let slot = 0; slot < PAGE_SIZE; slot++) page(address).masked[slot] = (operation.bits & (1 << slot)) !== 0;
        return;
      }
      case 'copy-slots':
        applySlotCopy(this, actor, operation);
        return;
      case 'copy-tokens':
        applyTokenCopy(this, actor, operation);
        return;
      case 'export': {
        const chosen = [...new Set(operation.picks.map(at))];
        if (!chosen.every((address) => pages.has(address))) return;
        const snapshot = space.snapshot(Uint32Array.from(chosen));
        const copies = chosen.map((address) => copyOf(page(address)));
        const filled = copies.flatMap(({ slots }) => slots.filter((slot) => slot !== undefined));
        assert.equal(snapshot.tokens, filled.length);
        assert.equal(snapshot.nextPosition, Math.max(0, ...filled.map(({ position }) => position + 1)));
        this.kit.memory.snapshots.retain(snapshot);
        this.#unexport(operation.name);
        this.exports.set(operation.name, { snapshot, pages: copies });
        return;
      }
      case 'import': {
        const found = this.exports.get(operation.name);
        if (!found) return;
        const first = actor.nextAddress;
        actor.nextAddress += found.pages.length;
        const done = this.attempt(actor, found.pages.length, () => space.importSnapshot(first, found.snapshot));
        if (!done) return;
        for (const [i, copy] of found.pages.entries()) pages.set(first + i, copyOf(copy));
        return;
      }
      case 'reload':
        this.#reload(actor, operation.name);
        return;
      case 'waiting':
        space.waiting = operation.value;
        return;
      case 'busy':
        actor.busy = operation.value;
        space.busy = operation.value;
    }
  }

  allocate(actor: Actor, count: number): number[] | undefined {
    const first = actor.nextAddress;
    actor.nextAddress += count;
    if (!this.attempt(actor, count, () => actor.space.allocate(first, count))) return undefined;
    const addresses = Array.from({ length: count }, (_, i) => first + i);
    for (const address of addresses) actor.pages.set(address, emptyPage(PAGE_SIZE));
    return addresses;
  }

  #share(actor: Actor, sources: readonly number[]): number[] {
    const first = actor.nextAddress;
    actor.nextAddress += sources.length;
    actor.space.share(Uint32Array.from(sources), first);
    return sources.map((source, i) => {
      actor.pages.set(first + i, copyOf(actor.pages.get(source) as PlainPage));
      return first + i;
    });
  }

  #batch(operation: Extract<Operation, { kind: 'batch' }>): void {
    const pagesBefore = new Map<Actor, Map<number, PlainPage>>();
    const prepared: { actor: Actor; write: PreparedWrite }[] = [];
    for (const call of operation.calls) {
      const actor = this.actor(call.who);
      actor.space.busy = true;
      const shape = this.#shape(actor, call);
      if (!shape) continue;
      if (!pagesBefore.has(actor))
        pagesBefore.set(actor, new Map([...actor.pages].map(([key, page]) => [key, copyOf(page)])));
      const write = prepareWrite(this, actor, shape);
      if (write) prepared.push({ actor, write });
    }
    for (const { actor } of prepared)
      assert.ok(actor.space.heldPages <= Math.min(this.setting.maxPages, this.setting.pages));
    const [firstPrepared] = prepared;
    if (operation.fate === 'killed' && firstPrepared && this.actors.includes(firstPrepared.actor)) {
      this.#end(this.actors.indexOf(firstPrepared.actor));
    }
    // Drop the writes of inferlets that were ended meanwhile.
    const remainingWrites = prepared.filter(({ actor }) => this.actors.includes(actor));
    if (operation.fate === 'failed') {
      for (const { write } of remainingWrites.reverse()) write.revert();
      for (const [{ pages }, former] of pagesBefore) {
        // A page that the failed batch allocated is empty again.
        for (const address of pages.keys()) pages.set(address, former.get(address) ?? emptyPage(PAGE_SIZE));
      }
    } else for (const { write } of remainingWrites) write.compute();
    for (const actor of this.actors) if (actor) actor.space.busy = actor.busy;
  }

  #shape(actor: Actor, call: WriteCall): WriteShape | undefined {
    const { pages } = actor;
    if (call.kind === 'forward') {
      if (pages.size === 0) return undefined;
      const at = (pick: number): number => addressOf(actor, pick);
      return {
        inPages: [...new Set(call.from.map(at))],
        outPages: [...new Set(call.into.map(at))],
        tokens: call.tokens,
        first: call.first,
        keep: 0,
        adapter: adapterOf(call),
      };
    }
    const { bend } = call;
    const inPages = [...actor.text];
    const [moved] = inPages.splice(
      call.pick % Math.max(1, inPages.length),
      bend === 'omit' || bend === 'reorder' ? 1 : 0,
    );
    if (bend === 'reorder' && moved !== undefined) inPages.unshift(moved);
    const into = bend === 'elsewhere' ? [] : actor.text;
    const slotsOf = (addresses: number[]) => addresses.flatMap((address) => (pages.get(address) as PlainPage).slots);
    const emptyCount = slotsOf(into).filter((slot) => !slot).length;
    const filledCount = slotsOf(inPages).filter((slot) => slot).length;
    const missingPages = Math.ceil(Math.max(0, call.tokens.length - emptyCount) / PAGE_SIZE);
    // Some calls allocate more pages than they fill.
    const newPages = this.allocate(actor, missingPages + (call.pick % 8 === 0 ? 2 : 0));
    if (!newPages) return undefined;
    actor.text = [...actor.text, ...newPages];
    return {
      inPages: [...inPages, ...newPages],
      outPages: [...into, ...newPages],
      tokens: call.tokens,
      first: bend === 'overlap' ? Math.max(0, filledCount - 1 - (call.pick % 3)) : filledCount,
      keep: call.keep,
      adapter: adapterOf(call),
    };
  }

  #reload(actor: Actor, name: number): void {
    const found = this.exports.get(name);
    if (!found) return;
    const { memory, device } = this.kit;
    const { snapshot } = found;
    const stored = snapshot.pages.map(({ page, masked }, i) => {
      const bytes = new Uint8Array(device.pageBytes);
      memory.snapshots.readPage(snapshot, i, bytes);
      return { filled: page.filled, masked, positions: page.positions.slice(), bytes };
    });
    device.settlePages();
    this.#unexport(name);
    const { tokens, nextPosition } = snapshot;
    this.attempt(actor, stored.length, () => {
      const restoration = memory.restore(actor.space, actor.space.owner.tenant, stored.length);
      for (const [index, page] of stored.entries()) restoration.fill(index, page, page.bytes);
      const restored = restoration.finish(tokens, nextPosition);
      restoration.end();
      this.exports.set(name, { snapshot: restored, pages: found.pages });
    });
  }

  #unexport(name: number): void {
    const found = this.exports.get(name);
    if (!found) return;
    this.exports.delete(name);
    this.kit.memory.snapshots.release(found.snapshot);
  }

  #end(who: number): void {
    const actor = this.actors[who];
    if (!actor) return;
    this.actors[who] = undefined;
    this.kit.memory.closeSpace(actor.space);
  }

  #comparePage({ page, masked }: FrozenPage, expected: PlainPage): void {
    const { device, swap } = this.kit;
    assert.ok(holders(page) > 0);
    const numbers = new Int32Array(PAGE_SIZE * 2);
    const bytes = new Uint8Array(numbers.buffer);
    if (page.frame >= 0) device.readPage(page.frame, bytes);
    else if (page.swapped) swap?.read(page.swapped, bytes);
    const found: PlainPage = {
      slots: Array.from({ length: PAGE_SIZE }, (_, slot) => {
        if ((page.filled & (1 << slot)) === 0) return undefined;
        const position = page.positions[slot] as number;
        assert.ok(position <= page.maxPosition);
        assert.equal(numbers[slot * 2 + 1], position, 'a key is rotated to another position than its slot says');
        return { position, value: numbers[slot * 2] as number };
      }),
      masked: Array.from({ length: PAGE_SIZE }, (_, slot) => (masked & (1 << slot)) !== 0),
    };
    if (!samePage(found, expected)) assert.deepEqual(found, expected);
  }
}

/** Inferlets compute with the model alone or one of two adapters, and now and then switch. */
function adapterOf({ who, adapter }: WriteCall): string | undefined {
  return [undefined, 'a', 'bb'][(who + adapter) % 3];
}
