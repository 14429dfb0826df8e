import assert from 'node:assert/strict';
import { fstatSync, ftruncateSync, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { SwapFault, SwapStore, type SwapTicket, slotFile } from './store.ts';

/*
 * Compares the store with a list of the pages that were put into it. The store uses a real file, which the test damages and truncates, and whose
 * writes fail at times. Calls also come while the store moves pages to the file.
 */

const SEED = 31_415;
const RUNS = 220;
const MIN_OPERATIONS = 100_000;
const PAGE_BYTES = 48;
const MEMORY_PAGES = 6;
const DISK_PAGES = 10;

type Operation =
  | { readonly op: 'put'; readonly content: number }
  /** `take` reads a page and drops it. */
  | { readonly op: 'read' | 'take' | 'drop'; readonly which: number }
  | { readonly op: 'flip'; readonly which: number; readonly byte: number }
  | { readonly op: 'truncate'; readonly pages: number }
  /** Makes writes fail, or succeed again. */
  | { readonly op: 'break-writes' }
  /** Waits for one turn of the event loop, or until the store moves no page. */
  | { readonly op: 'turn' | 'wait' };

const which = fc.nat();
const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 10, arbitrary: fc.record({ op: fc.constant('put' as const), content: fc.nat(0xffff_ffff) }) },
  { weight: 4, arbitrary: fc.record({ op: fc.constant('read' as const), which }) },
  { weight: 5, arbitrary: fc.record({ op: fc.constant('take' as const), which }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('drop' as const), which }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('flip' as const), which, byte: fc.nat(PAGE_BYTES - 1) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('truncate' as const), pages: fc.nat(DISK_PAGES * 4) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('break-writes' as const) }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constantFrom('turn' as const, 'wait' as const) }) },
);

interface StoredPage {
  readonly ticket: SwapTicket;
  readonly content: Uint8Array;
  lost: boolean;
}

const isOnDisk = ({ ticket }: StoredPage) => ticket.place === 'disk';
/** The page's slot in the file. */
const slotOf = ({ ticket }: StoredPage) => (ticket as SwapTicket & { readonly slot: number }).slot;

class Model {
  readonly fd: number;
  readonly store: SwapStore;
  storedPages: StoredPage[] = [];
  writesFail = false;
  readErrors = 0;
  writeErrors = 0;
  /** True when the last move of a page to disk failed. */
  #hasFailedMove = false;
  #writing = 0;

  constructor(directory: string) {
    const path = join(directory, 'swap');
    this.fd = openSync(path, 'wx+');
    unlinkSync(path);
    const file = slotFile(this.fd, PAGE_BYTES);
    this.store = new SwapStore({
      pageBytes: PAGE_BYTES,
      memoryBytes: MEMORY_PAGES * PAGE_BYTES,
      diskBytes: DISK_PAGES * PAGE_BYTES,
      directory,
      report: () => {},
      openFile: () => ({
        ...file,
        write: (slot, bytes) => {
          this.checkDisk();
          file.write(slot, bytes);
        },
        writeAsync: async (slot, bytes) => {
          this.#writing++;
          try {
            this.checkDisk();
            await file.writeAsync(slot, bytes);
            this.#hasFailedMove = false;
          } catch (error) {
            this.#hasFailedMove = true;
            throw error;
          } finally {
            this.#writing--;
          }
        },
      }),
    });
  }

  checkDisk(): void {
    if (!this.writesFail) return;
    this.writeErrors++;
    throw new Error('no space left on device');
  }

  /** Returns when the store moves no page. */
  async wait(): Promise<void> {
    do await setImmediate();
    while (this.#writing > 0);
    const inMemory = this.storedPages.filter((held) => !isOnDisk(held)).length;
    const onDisk = this.storedPages.length - inMemory;
    assert.equal(this.store.stats().writeErrors, this.writeErrors);
    assert.ok(
      inMemory < MEMORY_PAGES || onDisk === DISK_PAGES || this.#hasFailedMove,
      'memory has room for the next page',
    );
  }

  /** Returns once the store has closed its file, after a write that is under way. */
  async closed(): Promise<void> {
    do await setImmediate();
    while (this.#writing > 0);
    assert.throws(() => fstatSync(this.fd), /EBADF/);
  }

  async apply(operation: Operation): Promise<void> {
    switch (operation.op) {
      case 'put':
        this.put(operation.content);
        break;
      case 'read':
      case 'take':
      case 'drop':
        this.get(operation.op, operation.which);
        break;
      case 'flip':
        await this.wait();
        this.flip(operation.which, operation.byte);
        break;
      case 'turn':
        await setImmediate();
        break;
      case 'wait':
        await this.wait();
        break;
      case 'truncate':
        await this.wait();
        this.truncate(operation.pages);
        break;
      case 'break-writes':
        this.writesFail = !this.writesFail;
        break;
    }
  }

  put(seed: number): void {
    const content = pageOf(seed);
    const inMemory = this.storedPages.filter((held) => !isOnDisk(held)).length;
    const onDisk = this.storedPages.length - inMemory;
    const ticket = this.store.put(content);
    if (inMemory < MEMORY_PAGES) {
      assert.equal(ticket?.place, 'memory');
    } else if (onDisk === DISK_PAGES || this.writesFail) {
      assert.equal(ticket, undefined);
    } else {
      assert.equal(ticket?.place, 'disk');
    }
    if (!ticket) return;
    this.storedPages.push({ ticket, content, lost: false });
  }

  get(op: 'read' | 'take' | 'drop', which: number): void {
    const held = this.storedPages[which % (this.storedPages.length || 1)];
    if (!held) return;
    if (op !== 'read') this.storedPages = this.storedPages.filter((other) => other !== held);
    if (op === 'drop') {
      this.store.drop(held.ticket);
      return;
    }
    const into = new Uint8Array(PAGE_BYTES);
    if (held.lost) {
      this.readErrors++;
      assert.throws(() => this.store.read(held.ticket, into), SwapFault);
    } else {
      this.store.read(held.ticket, into);
      assert.deepEqual(into, held.content);
    }
    if (op === 'read') return;
    this.store.drop(held.ticket);
    assert.throws(() => this.store.drop(held.ticket), /ticket was spent/);
  }

  /** Damages an intact page on disk; a lost page stays lost. */
  flip(which: number, byte: number): void {
    const onDisk = this.storedPages.filter((held) => isOnDisk(held) && !held.lost);
    const held = onDisk[which % (onDisk.length || 1)];
    if (!held) return;
    writeSync(this.fd, Uint8Array.of((held.content[byte] as number) ^ 0x10), 0, 1, slotOf(held) * PAGE_BYTES + byte);
    held.lost = true;
  }

  truncate(pages: number): void {
    if (pages >= DISK_PAGES) return;
    // Cut in the middle of a page, which is lost as well.
    ftruncateSync(this.fd, pages * PAGE_BYTES + 5);
    for (const held of this.storedPages) if (isOnDisk(held) && slotOf(held) >= pages) held.lost = true;
  }

  check(): void {
    this.store.check();
    const places = this.storedPages.map((held) => `${held.ticket.place} ${slotOf(held)}`);
    assert.equal(new Set(places).size, places.length, 'two pages have one place');
    const { memoryPages, diskPages, capacity, readErrors } = this.store.stats();
    assert.deepEqual(
      { memoryPages, diskPages, capacity, readErrors },
      {
        memoryPages: this.storedPages.filter((held) => !isOnDisk(held)).length,
        diskPages: this.storedPages.filter(isOnDisk).length,
        capacity: MEMORY_PAGES + DISK_PAGES,
        readErrors: this.readErrors,
      },
    );
  }
}

/** Bytes derived from a seed; never all zero, so that a hole in the file cannot equal them. */
function pageOf(seed: number): Uint8Array {
  const page = new Uint8Array(PAGE_BYTES);
  let state = seed;
  for (let i = 0; i < PAGE_BYTES; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    page[i] = (state >>> 24) | 1;
  }
  return page;
}

test('a hundred thousand random operations give back each stored page, or report that the disk lost it', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'pie-swap-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const counts = { operations: 0, readErrors: 0, writeErrors: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 1500, size: 'max' }), async (schedule) => {
      const model = new Model(directory);
      try {
        for (const each of schedule) {
          await model.apply(each);
          model.check();
        }
        await model.wait();
        // Every remaining page comes back, or is known to be lost.
        while (model.storedPages.length > 0) model.get('take', 0);
        model.check();
      } finally {
        // Puts more pages than fit into memory, so that the store opens its file, and `close` then closes the file.
        model.writesFail = false;
        for (let page = 0; page <= MEMORY_PAGES; page++) model.store.put(pageOf(page));
        model.store.close();
        await model.closed();
      }
      counts.operations += schedule.length;
      counts.readErrors += model.readErrors;
      counts.writeErrors += model.writeErrors;
    }),
    { seed: SEED, numRuns: RUNS },
  );
  t.diagnostic(`seed ${SEED}: ${JSON.stringify(counts)} in ${RUNS} schedules`);
  assert.ok(counts.operations >= MIN_OPERATIONS, `${counts.operations} operations`);
  assert.ok(counts.readErrors > 100 && counts.writeErrors > 100, JSON.stringify(counts));
});
