import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { handlerError } from '../protocol/errors.ts';
import { CallFault } from './fault.ts';
import { fillSlot, PagePool, slotBits } from './pool.ts';
import { bitCount, PageSpace } from './space.ts';

const PAGE_SIZE = 8;

/** A device that is an array: what was copied where can be seen. */
function makeSpace(pool: PagePool, content: number[], maxPages: number): PageSpace {
  return new PageSpace(pool, maxPages, (sources, destinations) => {
    const values = Array.from(sources, (slot) => content[slot]);
    destinations.forEach((slot, i) => {
      content[slot] = values[i] as number;
    });
  });
}

function faultOf(action: () => void): CallFault {
  try {
    action();
  } catch (error) {
    if (error instanceof CallFault) return error;
    throw error;
  }
  throw new Error('no fault');
}

function writeInputs(space: PageSpace, content: number[], pages: Uint32Array, values: readonly number[]): void {
  const slots = space.emptySlots(pages, values.length);
  slots.forEach(({ page, slot }, i) => {
    content[page.index * PAGE_SIZE + slot] = values[i] as number;
    fillSlot(page, slot, values[i] as number);
  });
}

test('bits of slots', () => {
  assert.equal(slotBits(8), 0xff);
  assert.equal(slotBits(32), 0xffffffff);
  assert.equal(bitCount(0xffffffff), 32);
  assert.equal(bitCount(0b1011), 3);
});

test('a request larger than the pool or the limit claims nothing', () => {
  const pool = new PagePool(PAGE_SIZE, 4);
  const space = makeSpace(pool, [], 3);
  assert.equal(faultOf(() => space.allocate(1, 5)).error.tag, 'limit-exceeded');
  assert.equal(faultOf(() => space.allocate(1, 4)).error.tag, 'limit-exceeded');
  const other = makeSpace(pool, [], 4);
  other.allocate(1, 3);
  const full = faultOf(() => space.allocate(1, 2)).error;
  assert.equal(full.tag, 'limit-exceeded');
  assert.match(full.val, /2 pages are needed and 1 of 4 are free/);
  assert.deepEqual(pool.counts(), { free: 1, cached: 0, owned: 3, swapped: 0, total: 4 });
});

test('addresses that are not held are refused by name, and a failed allocation is the cause of what needs it', () => {
  const pool = new PagePool(PAGE_SIZE, 4);
  const space = makeSpace(pool, [], 4);
  const queue = {};
  assert.deepEqual(
    faultOf(() => space.mapping(7)).error,
    handlerError('not-owned', 'page 7 is not held: never allocated, or freed'),
  );
  space.failures.markRange(10, 3, handlerError('limit-exceeded', 'no room'), queue);
  const dependent = faultOf(() => space.mapping(12)).error;
  assert.equal(dependent.tag, 'dependency-failed');
  assert.match(dependent.val, /limit-exceeded: no room/);
  space.failures.clear({});
  assert.equal(faultOf(() => space.mapping(12)).error.tag, 'dependency-failed', 'another queue is not told');
  space.failures.clear(queue);
  assert.equal(faultOf(() => space.mapping(12)).error.tag, 'not-owned');
});

test('a page whose contents were never computed fails what reads it, until the failure is told or the page is freed', () => {
  const pool = new PagePool(PAGE_SIZE, 4);
  const space = makeSpace(pool, [], 4);
  const queue = {};
  space.allocate(1, 2);
  space.fail(Uint32Array.of(2, 99), handlerError('invalid-argument', 'bad token'), queue);
  assert.equal(faultOf(() => space.share(Uint32Array.of(1, 2), 10)).error.tag, 'dependency-failed');
  assert.equal(space.has(10), false);
  space.free(Uint32Array.of(2));
  assert.equal(faultOf(() => space.mapping(2)).error.tag, 'not-owned');
  space.fail(Uint32Array.of(1), handlerError('invalid-argument', 'bad token'), queue);
  space.failures.clear(queue);
  assert.equal(space.mapping(1).masked, 0);
});

test('masks belong to the mapping', () => {
  const pool = new PagePool(PAGE_SIZE, 4);
  const space = makeSpace(pool, [], 4);
  space.allocate(1, 1);
  space.share(Uint32Array.of(1), 2);
  space.mask(1, 0b101);
  assert.equal(space.mapping(2).masked, 0);
  space.share(Uint32Array.of(1), 3);
  assert.equal(space.mapping(3).masked, 0b101, 'a new address starts with its source’s mask');
  assert.equal(faultOf(() => space.mask(1, 1 << PAGE_SIZE)).error.tag, 'invalid-argument');
});

test('a write through a shared address copies first, and the last holder writes in place', () => {
  const pool = new PagePool(PAGE_SIZE, 3);
  const content: number[] = [];
  const space = makeSpace(pool, content, 3);
  space.allocate(1, 1);
  writeInputs(space, content, Uint32Array.of(1), [11, 12]);
  space.share(Uint32Array.of(1), 2);
  assert.equal(space.heldPages, 1);
  writeInputs(space, content, Uint32Array.of(2), [13]);
  assert.equal(space.heldPages, 2);
  assert.notEqual(space.mapping(1).page, space.mapping(2).page);
  assert.equal(bitCount(space.mapping(1).page.filled), 2);
  const before = space.mapping(1).page;
  writeInputs(space, content, Uint32Array.of(1), [14]);
  assert.equal(space.mapping(1).page, before);
});

interface NaivePage {
  slots: ({ position: number; value: number } | undefined)[];
  masked: boolean[];
}

type Operation =
  | { kind: 'allocate'; who: number; count: number }
  | { kind: 'free' | 'share'; who: number; picks: number[] }
  | { kind: 'write'; who: number; picks: number[]; count: number }
  | { kind: 'copy'; who: number; from: number; to: number; fromSlot: number; toSlot: number; count: number }
  | { kind: 'mask'; who: number; pick: number; bits: number }
  | { kind: 'end'; who: number };

const who = fc.nat({ max: 2 });
const picks = fc.array(fc.nat({ max: 1000 }), { maxLength: 4 });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('allocate' as const), who, count: fc.integer({ min: 0, max: 5 }) }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('free' as const, 'share' as const), who, picks }) },
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('write' as const), who, picks, count: fc.integer({ min: 1, max: 20 }) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('copy' as const),
      who,
      from: fc.nat({ max: 1000 }),
      to: fc.nat({ max: 1000 }),
      fromSlot: fc.nat({ max: PAGE_SIZE }),
      toSlot: fc.nat({ max: PAGE_SIZE }),
      count: fc.nat({ max: PAGE_SIZE }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('mask' as const),
      who,
      pick: fc.nat({ max: 1000 }),
      bits: fc.nat({ max: 255 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('end' as const), who }) },
);

/**
 * The oracle has no sharing at all: every address owns its slots, and a share is a deep copy. Whatever the pool does to share pages must
 * not be seen through any address.
 */
class Model {
  readonly pool = new PagePool(PAGE_SIZE, 12);
  readonly content: number[] = [];
  readonly spaces: PageSpace[] = [];
  readonly naive: Map<number, NaivePage>[] = [];
  #next = 1;
  #value = 1;

  constructor() {
    for (let i = 0; i < 3; i++) {
      this.spaces.push(makeSpace(this.pool, this.content, 7));
      this.naive.push(new Map());
    }
  }

  apply(operation: Operation): void {
    const space = this.spaces[operation.who]!;
    const naive = this.naive[operation.who]!;
    const held = [...naive.keys()];
    const at = (pick: number): number => (held.length === 0 ? 5000 : held[pick % held.length]!);
    switch (operation.kind) {
      case 'allocate': {
        const first = this.#next;
        this.#next += operation.count;
        const fits = operation.count <= this.pool.free && space.heldPages + operation.count <= space.maxPages;
        const done = this.#try(() => space.allocate(first, operation.count));
        assert.equal(done, fits);
        for (let i = 0; done && i < operation.count; i++) naive.set(first + i, emptyPage());
        return;
      }
      case 'free': {
        const pages = operation.picks.map(at);
        const legal = new Set(pages).size === pages.length && pages.every((page) => naive.has(page));
        assert.equal(
          this.#try(() => space.free(Uint32Array.from(pages))),
          legal,
        );
        if (legal) for (const page of pages) naive.delete(page);
        return;
      }
      case 'share': {
        const pages = operation.picks.map(at);
        const first = this.#next;
        this.#next += pages.length;
        const legal = pages.every((page) => naive.has(page));
        assert.equal(
          this.#try(() => space.share(Uint32Array.from(pages), first)),
          legal,
        );
        if (legal) for (const [i, page] of pages.entries()) naive.set(first + i, structuredClone(naive.get(page)!));
        return;
      }
      case 'write': {
        const pages = [...new Set(operation.picks.map(at))];
        const values = Array.from({ length: operation.count }, () => this.#value++);
        const empty: [NaivePage, number][] = [];
        for (const page of pages) {
          for (const [i, slot] of (naive.get(page)?.slots ?? []).entries())
            if (!slot) empty.push([naive.get(page)!, i]);
        }
        const room = pages.every((page) => naive.has(page)) && empty.length >= values.length;
        const done = this.#try(() => writeInputs(space, this.content, Uint32Array.from(pages), values));
        if (!room) assert.equal(done, false);
        if (!done) return;
        for (const [i, value] of values.entries()) empty[i]![0].slots[empty[i]![1]] = { position: value, value };
        return;
      }
      case 'copy': {
        const [from, to] = [at(operation.from), at(operation.to)];
        const { fromSlot, toSlot, count } = operation;
        const legal = naive.has(from) && naive.has(to) && fromSlot + count <= PAGE_SIZE && toSlot + count <= PAGE_SIZE;
        const done = this.#try(() => space.copySlots(from, fromSlot, to, toSlot, count));
        if (!legal) assert.equal(done, false);
        if (!done) return;
        const source = structuredClone(naive.get(from)!);
        for (let i = 0; i < count; i++) {
          naive.get(to)!.slots[toSlot + i] = source.slots[fromSlot + i];
          naive.get(to)!.masked[toSlot + i] = source.masked[fromSlot + i]!;
        }
        return;
      }
      case 'mask': {
        const page = at(operation.pick);
        assert.equal(
          this.#try(() => space.mask(page, operation.bits)),
          naive.has(page),
        );
        const masked = naive.get(page)?.masked;
        for (let i = 0; masked && i < PAGE_SIZE; i++) masked[i] = (operation.bits & (1 << i)) !== 0;
        return;
      }
      case 'end':
        space.releaseAll();
        naive.clear();
    }
  }

  check(): void {
    this.pool.check();
    const pages = new Map<number, number>();
    for (const [who, space] of this.spaces.entries()) {
      assert.deepEqual([...space.addresses].sort(byNumber), [...this.naive[who]!.keys()].sort(byNumber));
      const own = new Set<number>();
      for (const [address, expected] of this.naive[who]!) {
        const { page, masked } = space.mapping(address);
        own.add(page.index);
        pages.set(page.index, (pages.get(page.index) ?? 0) + 1);
        const seen = expected.slots.map((_, slot) =>
          page.filled & (1 << slot)
            ? { position: page.positions[slot]!, value: this.content[page.index * PAGE_SIZE + slot]! }
            : undefined,
        );
        assert.deepEqual(seen, expected.slots);
        assert.deepEqual(
          expected.masked.map((_, slot) => (masked & (1 << slot)) !== 0),
          expected.masked,
        );
        for (const slot of seen) assert.ok(!slot || slot.position <= page.maxPosition);
        assert.ok(page.references > 0);
      }
      assert.equal(space.heldPages, own.size);
      assert.ok(space.heldPages <= space.maxPages);
    }
    assert.equal(this.pool.counts().owned, pages.size);
    for (const [index, references] of pages) {
      const page = this.spaces
        .flatMap((space) => [...space.addresses].map((a) => space.mapping(a).page))
        .find((p) => p.index === index);
      assert.equal(page!.references, references);
    }
  }

  #try(action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      if (error instanceof CallFault) return false;
      throw error;
    }
  }
}

function emptyPage(): NaivePage {
  return { slots: new Array(PAGE_SIZE).fill(undefined), masked: new Array(PAGE_SIZE).fill(false) };
}

function byNumber(a: number, b: number): number {
  return a - b;
}

test('any schedule of calls looks as if nothing were ever shared, and no page is lost', () => {
  fc.assert(
    fc.property(fc.array(operation, { minLength: 20, maxLength: 120 }), (operations) => {
      const model = new Model();
      for (const step of operations) {
        model.apply(step);
        model.check();
      }
      for (const space of model.spaces) space.releaseAll();
      assert.equal(model.pool.free, model.pool.total);
    }),
    { seed: 20261120, numRuns: 400 },
  );
});
