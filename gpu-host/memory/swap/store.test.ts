import assert from 'node:assert/strict';
import { ftruncateSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { type SlotFile, SwapFault, type SwapOptions, SwapStore, type SwapTicket, slotFile } from './store.ts';

const PAGE_BYTES = 64;

function temporaryDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'pie-swap-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const pageFilledWith = (value: number): Uint8Array => new Uint8Array(PAGE_BYTES).fill(value);

/** A store of so many pages in memory and on disk. A test that uses the disk gives it a directory or a file. */
const storeOf = (memoryPages: number, diskPages: number, options: Partial<SwapOptions> = {}): SwapStore =>
  new SwapStore({
    pageBytes: PAGE_BYTES,
    memoryBytes: memoryPages * PAGE_BYTES,
    diskBytes: diskPages * PAGE_BYTES,
    directory: '/nowhere',
    report: () => undefined,
    ...options,
  });

/** Reads a page and drops it, readable or not. */
function readAndDrop(store: SwapStore, ticket: SwapTicket): Uint8Array {
  const into = new Uint8Array(PAGE_BYTES);
  try {
    store.read(ticket, into);
  } finally {
    store.drop(ticket);
  }
  return into;
}

test('the store fills memory, then the disk, then refuses; a freed place can be used again', (t) => {
  const store = storeOf(2, 1, { memoryBytes: 2 * PAGE_BYTES + 1, directory: temporaryDirectory(t) });
  const tickets = [1, 2, 3].map((value) => store.put(pageFilledWith(value))!);
  assert.deepEqual(
    tickets.map(({ place }) => place),
    ['memory', 'memory', 'disk'],
  );
  assert.equal(store.put(pageFilledWith(4)), undefined);
  store.drop(tickets[1]!);
  const fourth = store.put(pageFilledWith(4))!;
  assert.equal(fourth.place, 'memory');
  assert.deepEqual(readAndDrop(store, tickets[2]!), pageFilledWith(3));
  assert.deepEqual(readAndDrop(store, fourth), pageFilledWith(4));
  assert.deepEqual(readAndDrop(store, tickets[0]!), pageFilledWith(1));
  assert.deepEqual(store.stats(), { memoryPages: 0, diskPages: 0, capacity: 3, writeErrors: 0, readErrors: 0 });
  store.close();
});

test('a stored page stays when it is read, and does not change with the buffers of the caller', (t) => {
  const store = storeOf(1, 0);
  const bytes = pageFilledWith(1);
  const ticket = store.put(bytes)!;
  bytes.fill(9);
  const into = new Uint8Array(PAGE_BYTES);
  store.read(ticket, into);
  assert.deepEqual(into, pageFilledWith(1));
  into.fill(8);
  assert.deepEqual(readAndDrop(store, ticket), pageFilledWith(1));
  t.assert.throws(() => store.read(ticket, into), /ticket was spent/);
  t.assert.throws(() => store.drop(ticket), /ticket was spent/);
});

test('putFrom reads a page straight into its slot in memory, which comes from `allocate` if possible', (t) => {
  const pieces: number[] = [];
  const store = storeOf(3, 1, {
    directory: temporaryDirectory(t),
    // Provides the first piece only; the store uses ordinary memory for the rest.
    allocate: (bytes) => {
      pieces.push(bytes);
      return pieces.length === 1 ? new Uint8Array(bytes) : undefined;
    },
  });
  const read = (value: number) => (into: Uint8Array) => void into.fill(value);
  const tickets = [1, 2, 3, 4].map((value) => store.putFrom(read(value))!);
  assert.deepEqual(
    tickets.map((ticket) => [ticket.place, store.pageInMemory(ticket)?.[0]]),
    [
      ['memory', 1],
      ['memory', 2],
      ['memory', 3],
      ['disk', undefined],
    ],
  );
  assert.deepEqual(
    pieces,
    [3 * PAGE_BYTES, PAGE_BYTES],
    'one piece for all pages in memory, one page on its way to the disk',
  );
  assert.equal(new Set(tickets.slice(0, 3).map((ticket) => store.pageInMemory(ticket)!.buffer)).size, 1);
  assert.equal(
    store.putFrom(() => assert.fail('nothing is read for which there is no room')),
    undefined,
  );
  assert.deepEqual(readAndDrop(store, tickets[3]!), pageFilledWith(4));
  assert.deepEqual(readAndDrop(store, tickets[1]!), pageFilledWith(2));
  for (const where of ['memory', 'disk']) {
    assert.throws(() => store.putFrom(() => assert.fail('the device failed')), /the device failed/);
    store.check();
    assert.equal(store.putFrom(read(5))?.place, where);
  }
  assert.equal(store.stats().writeErrors, 0);
  store.close();
});

test('the file of the store has no name in its directory', (t) => {
  const directory = temporaryDirectory(t);
  const store = storeOf(0, 1, { directory });
  const ticket = store.put(pageFilledWith(5))!;
  assert.deepEqual(readdirSync(directory), []);
  assert.deepEqual(readAndDrop(store, ticket), pageFilledWith(5));
  store.close();
});

test('when the disk changes or loses a page, only reads of that page fail', (t) => {
  let fd = -1;
  const reports: string[] = [];
  const store = storeOf(0, 3, {
    directory: temporaryDirectory(t),
    openFile: (directory, pageBytes) => {
      fd = openSync(join(directory, 'swap'), 'wx+');
      return slotFile(fd, pageBytes);
    },
    report: (problem) => reports.push(problem),
  });
  const [first, second, third] = [1, 2, 3].map((value) => store.put(pageFilledWith(value))!);
  // Changes byte 7 of the second page, and cuts the third page after 10 bytes.
  writeSync(fd, Uint8Array.of(0), 0, 1, PAGE_BYTES + 7);
  ftruncateSync(fd, 2 * PAGE_BYTES + 10);
  assert.throws(() => readAndDrop(store, second!), SwapFault);
  assert.throws(() => store.read(third!, new Uint8Array(PAGE_BYTES)), /the file ends after 10 of 64 bytes/);
  assert.deepEqual(readAndDrop(store, first!), pageFilledWith(1));
  assert.equal(store.stats().readErrors, 2);
  assert.deepEqual(reports, ['a page cannot be read back: its checksum does not match'], 'reported once');
  store.drop(third!);
  assert.equal(store.stats().diskPages, 0);
  store.check();
  const again = [4, 5, 6].map((value) => store.put(pageFilledWith(value))!);
  assert.deepEqual(
    again.map((ticket) => readAndDrop(store, ticket)[0]),
    [4, 5, 6],
  );
  store.close();
});

test('when the disk refuses every write, the store refuses pages that do not fit into memory, and reports the reason once', (t) => {
  const directory = join(temporaryDirectory(t), 'a-file');
  writeFileSync(directory, '');
  const reports: string[] = [];
  const store = storeOf(1, 1, { directory, report: (problem) => reports.push(problem) });
  const ticket = store.put(pageFilledWith(1))!;
  assert.equal(store.put(pageFilledWith(2)), undefined);
  assert.equal(store.put(pageFilledWith(2)), undefined);
  assert.equal(store.stats().writeErrors, 2);
  assert.equal(reports.length, 1);
  assert.match(reports[0]!, /cannot be written: .*(EEXIST|ENOTDIR)/);
  assert.equal(store.stats().diskPages, 0);
  assert.deepEqual(readAndDrop(store, ticket), pageFilledWith(1));
});

test('the store refuses pages of another size', () => {
  const store = storeOf(0, 0, { pageBytes: 4, memoryBytes: 8 });
  assert.throws(() => store.put(new Uint8Array(5)), RangeError);
  const ticket = store.put(new Uint8Array(4))!;
  assert.throws(() => store.read(ticket, new Uint8Array(3)), RangeError);
  assert.throws(() => storeOf(1, 0, { pageBytes: 0 }), RangeError);
});

test('a disk that fails, works and fails again is reported twice', () => {
  let isBroken = true;
  const reports: string[] = [];
  const store = storeOf(0, 4, {
    openFile: () => ({
      read() {},
      write() {
        if (isBroken) throw new Error('no space');
      },
      writeAsync: async () => assert.fail('no page is in memory'),
      readAsync: async () => assert.fail('nothing fetches pages'),
      close() {},
    }),
    report: (problem) => reports.push(problem),
  });
  // The disk is in one of these states at each put.
  for (isBroken of [true, true, false, true]) store.put(pageFilledWith(1));
  assert.deepEqual(reports, ['a page cannot be written: no space', 'a page cannot be written: no space']);
});

test('the store calls `settle` before it uses memory that the device may still copy', (t) => {
  const log: string[] = [];
  const store = storeOf(1, 1, { directory: temporaryDirectory(t), settle: () => log.push('settle') });
  const put = (value: number) => store.putFrom((into, stays) => log.push(`read ${stays}`) && into.fill(value));
  const [first, second] = [put(1)!, put(2)!];
  assert.deepEqual(log.splice(0), ['read true', 'read false'], 'a page for the disk does not stay in its buffer');
  assert.deepEqual(store.pageInMemory(first), pageFilledWith(1));
  assert.deepEqual(readAndDrop(store, second), pageFilledWith(2));
  assert.deepEqual(log.splice(0), [], 'the device copies a held page itself, and no page on disk');
  assert.deepEqual(readAndDrop(store, first), pageFilledWith(1));
  assert.deepEqual(log.splice(0), ['settle']);
  store.put(pageFilledWith(3));
  assert.deepEqual(log, ['settle'], 'the device may still copy the page that had this place');
  store.close();
});

/** A file in memory whose asynchronous reads and writes end when the test says so. */
class HeldFile implements SlotFile {
  readonly slots = new Map<number, Uint8Array>();
  readonly log: string[] = [];
  #ends: ((failure?: Error) => void)[] = [];

  write(slot: number, bytes: Uint8Array): void {
    this.log.push(`write ${slot}`);
    this.slots.set(slot, bytes.slice());
  }

  async writeAsync(slot: number, bytes: Uint8Array): Promise<void> {
    this.log.push(`begin ${slot}`);
    await this.#untilEnded();
    this.write(slot, bytes);
  }

  async readAsync(slot: number, into: Uint8Array): Promise<void> {
    this.log.push(`fetch ${slot}`);
    await this.#untilEnded();
    this.read(slot, into);
  }

  #untilEnded(): Promise<void> {
    return new Promise((resolve, reject) => this.#ends.push((failure) => (failure ? reject(failure) : resolve())));
  }

  read(slot: number, into: Uint8Array): void {
    into.set(this.slots.get(slot)!);
  }

  close(): void {
    this.log.push('close');
  }

  /** Ends the read or write that began first. */
  async end(failure?: Error): Promise<void> {
    await setImmediate();
    this.#ends.shift()!(failure);
    await setImmediate();
  }
}

function heldStore(memoryPages: number, diskPages: number) {
  const file = new HeldFile();
  const reports: string[] = [];
  const store = storeOf(memoryPages, diskPages, {
    openFile: () => file,
    report: (problem: string) => reports.push(problem),
  });
  const put = (value: number) => store.put(pageFilledWith(value))!;
  return { file, store, put, reports };
}

test('a page on disk is fetched on another thread, and stays until it is dropped', async () => {
  const { file, store, put } = heldStore(0, 2);
  const [first, second] = [put(1), put(2)];
  const into = new Uint8Array(PAGE_BYTES);
  const fetching = store.fetch(second, into);
  assert.deepEqual(readAndDrop(store, first), pageFilledWith(1), 'others are read meanwhile');
  await file.end();
  assert.equal(await fetching, true);
  assert.deepEqual(into, pageFilledWith(2));
  assert.deepEqual(readAndDrop(store, second), pageFilledWith(2));
  store.close();
});

test('a page that is dropped while it is fetched is not returned, also when another takes its place', async () => {
  const { file, store, put } = heldStore(0, 1);
  const first = put(1);
  const fetching = store.fetch(first, new Uint8Array(PAGE_BYTES));
  store.drop(first);
  // The same content has the same checksum.
  put(1);
  await file.end();
  assert.equal(await fetching, false);
  store.check();
  store.close();
});

test('a page that the disk does not return whole is not fetched, and `read` reports why', async () => {
  const { file, store, put, reports } = heldStore(0, 1);
  const page = put(1);
  const into = new Uint8Array(PAGE_BYTES);
  const failing = store.fetch(page, into);
  await file.end(new Error('bad sector'));
  assert.equal(await failing, false);
  file.slots.get(0)![3]! ^= 1;
  const damaged = store.fetch(page, into);
  await file.end();
  assert.equal(await damaged, false);
  assert.deepEqual(reports, []);
  assert.throws(() => store.read(page, into), SwapFault);
  assert.equal(reports.length, 1);
  store.close();
});

test('the file of a closed store is closed after the last fetch', async () => {
  const { file, store, put } = heldStore(0, 2);
  const fetches = [put(1), put(2)].map((page) => store.fetch(page, new Uint8Array(PAGE_BYTES)));
  store.close();
  await file.end();
  assert.ok(!file.log.includes('close'));
  await file.end();
  assert.deepEqual(await Promise.all(fetches), [false, false]);
  assert.equal(file.log.at(-1), 'close');
});

const placesOf = (tickets: SwapTicket[]) => tickets.map(({ place }) => place);

test('the store moves the pages that came first to disk, so that memory has room for the next ones', async () => {
  const { file, store, put } = heldStore(3, 2);
  const tickets = [put(1), put(2)];
  await setImmediate();
  assert.deepEqual(file.log, [], 'while memory has room, nothing moves');
  tickets.push(put(3));
  await setImmediate();
  assert.deepEqual(placesOf(tickets), ['memory', 'memory', 'memory']);
  assert.deepEqual(store.pageInMemory(tickets[0]!), pageFilledWith(1), 'a page stays in memory until it is on disk');
  tickets.push(put(4));
  assert.equal(tickets[3]!.place, 'disk', 'a page that finds no room goes to disk itself');
  await file.end();
  assert.deepEqual(placesOf(tickets), ['disk', 'memory', 'memory', 'disk']);
  tickets.push(put(5));
  await setImmediate();
  assert.deepEqual(file.log.splice(0), ['begin 0', 'write 1', 'write 0'], 'a full disk takes no page');
  store.check();
  assert.deepEqual(
    tickets.map((ticket) => readAndDrop(store, ticket)[0]),
    [1, 2, 3, 4, 5],
  );
  store.check();
});

test('the place of a write under way is not used again before the write has ended', async () => {
  const { file, store, put } = heldStore(1, 1);
  const first = put(1);
  await setImmediate();
  store.drop(first);
  const second = put(2);
  assert.deepEqual([second.place, put(3).place], ['memory', 'disk']);
  assert.deepEqual(file.log.splice(0), ['begin 0', 'write 1']);
  await file.end();
  assert.deepEqual(store.stats(), { memoryPages: 1, diskPages: 1, capacity: 2, writeErrors: 0, readErrors: 0 });
  assert.deepEqual(readAndDrop(store, second), pageFilledWith(2));
  store.check();
});

test('a page that is being moved stays in memory when `put` takes the last place on disk during the write', async () => {
  const { file, store, put } = heldStore(1, 1);
  const [first, second] = [put(1), put(2)];
  await file.end();
  assert.deepEqual(placesOf([first, second]), ['memory', 'disk']);
  assert.equal(store.put(pageFilledWith(3)), undefined);
  assert.deepEqual([readAndDrop(store, first)[0], readAndDrop(store, second)[0]], [1, 2]);
  store.check();
});

test('a page that cannot be moved stays in memory, and the next page tries again', async () => {
  const { file, store, put, reports } = heldStore(1, 2);
  const first = put(1);
  await file.end(new Error('no space'));
  assert.equal(first.place, 'memory');
  assert.equal(store.stats().writeErrors, 1);
  assert.deepEqual(reports, ['a page cannot be written: no space']);
  assert.deepEqual(readAndDrop(store, first), pageFilledWith(1));
  const second = put(2);
  await file.end();
  assert.equal(second.place, 'disk');
  for (const hasRead of [false, true, false]) {
    if (hasRead) store.read(second, new Uint8Array(PAGE_BYTES));
    const next = put(3);
    await file.end(new Error('no space'));
    store.drop(next);
  }
  assert.equal(reports.length, 3, 'reported again after a write or a read that succeeded, and only then');
  store.check();
});

test('the file is closed once no write is under way', async () => {
  const { file, store, put } = heldStore(1, 1);
  put(1);
  await setImmediate();
  store.close();
  assert.deepEqual(file.log, ['begin 0']);
  await file.end();
  assert.deepEqual(file.log, ['begin 0', 'write 0', 'close']);
});

test('a page moves to disk only after the device has copied it to memory', async () => {
  const file = new HeldFile();
  const log: string[] = [];
  const store = storeOf(1, 1, {
    openFile: () => file,
    settled: async () => {
      await setImmediate();
      buffer!.fill(7);
      log.push('settled');
    },
  });
  let buffer: Uint8Array | undefined;
  const ticket = store.putFrom((into) => {
    buffer = into;
  })!;
  await setImmediate();
  await file.end();
  assert.deepEqual([log, ticket.place, file.log], [['settled'], 'disk', ['begin 0', 'write 0']]);
  assert.deepEqual(readAndDrop(store, ticket), pageFilledWith(7));
});

test('the constructor allocates all memory that the device reaches fastest', () => {
  const sizes: number[] = [];
  const store = storeOf(0, 0, {
    pageBytes: 1024 * 1024,
    memoryBytes: 20 * 1024 * 1024,
    diskBytes: 1024 * 1024,
    allocate: (bytes) => {
      sizes.push(bytes / 1024 / 1024);
      return new Uint8Array(bytes);
    },
  });
  assert.deepEqual(sizes, [16, 4, 1], 'pieces of at most 16 MiB for 20 pages, and one page on its way to disk');
  for (let page = 0; page < 20; page++) assert.equal(store.put(new Uint8Array(store.pageBytes))?.place, 'memory');
  assert.equal(sizes.length, 3);
  store.close();
});

test('a store whose `allocate` fails calls it for each piece of 16 MiB, not for each page', () => {
  let calls = 0;
  const store = storeOf(0, 0, { pageBytes: 1 << 20, memoryBytes: 40 << 20, allocate: () => void calls++ });
  for (let page = 0; page < 40; page++) assert.ok(store.putFrom(() => undefined));
  assert.equal(calls, 3);
});
