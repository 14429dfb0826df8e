import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { CallFault } from '../fault.ts';
import { type Caller, directoryNameOf } from './entry.ts';
import { contentsOf, PAGE_BYTES, snapshotOf, TestRequester } from './testing/page-memory.ts';
import { Life, laterRefusalOf, refusalOf } from './testing/registries.ts';

/*
 * Random saves and restores run at the same time, page by page, while other calls replace or remove the same names, reads fail, and inferlets end.
 * A name must show the content of its last save that has not failed: right after the call, and, after a restart, from its file.
 */

const SEED = 161_803;
const RUNS = process.env.PIE_TEST_ALL ? 120 : 40;
const CALLER: Caller = { tenant: 't', inferlet: 'one', functionName: 'f' };
const NAMES = ['a', 'b', 'c', 'd', 'e'];
/** Two pages go to or from the disk at a time. The contents of all names and a neighbour's export together do not fit into memory. */
const LIMITS = { maxMemoryPages: 8, maxSavingBytes: 4000, bufferBytes: 2 * PAGE_BYTES };
const NEIGHBOUR_PAGES = 2;

const name = fc.constantFrom(...NAMES);
const operation = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ op: fc.constant('save' as const), name, pages: fc.nat(3), persistent: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('remove' as const), name }) },
  {
    weight: 4,
    arbitrary: fc.record({ op: fc.constant('open' as const), name, times: fc.integer({ min: 1, max: 3 }) }),
  },
  { weight: 5, arbitrary: fc.record({ op: fc.constant('turns' as const), turns: fc.integer({ min: 1, max: 8 }) }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('crowd' as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('pause' as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('fail' as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('end' as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('restart' as const) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** A content that a call gave to a name. `Trial.known` has them in the order of the calls. */
interface Known {
  readonly name: string;
  readonly contents: unknown;
  readonly persistent: boolean;
  /** True when the content was removed, or could not be saved. */
  isGone: boolean;
}

class Trial {
  readonly directory: string;
  readonly #wait: () => number;
  life: Life;
  requester: TestRequester;
  known: Known[] = [];
  /** Contents that the registry has shown under each name since the start, in order; undefined stands for a time without the name. */
  readonly shown = new Map<string, unknown[]>(NAMES.map((each) => [each, [undefined]]));
  /** Number of removals of each name. */
  readonly removals = new Map<string, number>();
  seeds = 0;
  readonly counts: Record<string, number>;
  readonly outcomes: Promise<void>[] = [];

  /** @param wait returns the number of turns of the event loop before the next page is copied */
  constructor(directory: string, counts: Record<string, number>, wait: () => number) {
    this.directory = directory;
    this.#wait = wait;
    this.life = new Life(directory, 0, LIMITS);
    this.requester = this.#newRequester();
    this.counts = counts;
  }

  async apply(operation: Operation): Promise<void> {
    switch (operation.op) {
      case 'save':
        await this.save(operation.name, operation.pages, operation.persistent);
        break;
      case 'remove':
        this.remove(operation.name);
        break;
      case 'open':
        for (let i = 0; i < operation.times; i++) this.open(operation.name);
        break;
      case 'turns':
        for (let turn = 0; turn < operation.turns; turn++) await setImmediate();
        break;
      case 'crowd':
        this.crowd();
        break;
      case 'pause':
        await setTimeout(1);
        break;
      case 'fail':
        this.life.memory.failingReads = 1;
        break;
      case 'end':
        this.requester.end();
        this.requester = this.#newRequester();
        break;
      case 'restart':
        await this.restart();
        break;
    }
    this.checkSeen();
  }

  async save(name: string, pages: number, persistent: boolean): Promise<void> {
    const snapshot = snapshotOf(this.seeds++, pages);
    let saved: Promise<void> | undefined;
    const trySave = () =>
      refusalOf(() => {
        const options = { persistent, rights: 'private' } as const;
        saved = this.life.registry.saveFile(CALLER, name, snapshot, options, this.requester);
      });
    let refusal = trySave();
    if (refusal === 'invalid-argument') {
      // The name exists, and the caller does not hold its lock. Opening the file takes the lock, and may bring pages from disk.
      const open = () => this.life.registry.openFile(CALLER, name, true, this.requester, contentsOf);
      const openRefusal = await laterRefusalOf(open);
      if (openRefusal !== undefined) assert.equal(openRefusal, 'not-found');
      refusal = trySave();
    }
    if (refusal !== undefined) {
      assert.equal(refusal, 'unavailable', 'too much is in memory, or being saved');
      this.count('refused');
      return;
    }
    assert.equal(saved !== undefined, persistent);
    const known: Known = { name, contents: contentsOf(snapshot), persistent, isGone: false };
    this.known.push(known);
    this.note();
    const removals = this.removals.get(name);
    const outcome = (saved ?? Promise.resolve()).then(
      () => this.count(persistent ? 'saved' : 'kept'),
      (error: unknown) => {
        assert.ok(error instanceof CallFault, String(error));
        if (error.error.tag === 'cancelled') {
          assert.notEqual(this.removals.get(name), removals, `"${name}" was not removed since`);
        } else {
          assert.match(error.message, /could not be saved: .*swap lost the page/);
          known.isGone = true;
          this.note();
        }
        this.count(error.error.tag);
      },
    );
    this.#await(outcome);
  }

  remove(name: string): void {
    const refusal = refusalOf(() => this.life.registry.removeFile(CALLER, name));
    assert.equal(refusal, this.visible(name) ? undefined : 'not-found');
    for (const known of this.known) if (known.name === name) known.isGone = true;
    this.removals.set(name, (this.removals.get(name) ?? 0) + 1);
    this.note();
  }

  /** Opens a name with its lock. A result from memory must be what the name shows now; one from disk, what it showed at some time since the call. */
  open(name: string): void {
    const shown = this.shown.get(name) as unknown[];
    const firstShown = shown.length - 1;
    const requester = this.requester;
    let opened: unknown;
    const refusal = refusalOf(() => {
      opened = this.life.registry.openFile(CALLER, name, true, requester, contentsOf);
    });
    if (refusal !== undefined) {
      assert.deepEqual([refusal, shown.at(-1)], ['not-found', undefined]);
      return;
    }
    if (!(opened instanceof Promise)) {
      assert.deepEqual(opened, shown.at(-1));
      return;
    }
    const outcome = opened.then(
      (contents) => {
        const possible = shown.slice(firstShown);
        assert.ok(
          possible.some((each) => isDeepStrictEqual(each, contents)),
          `"${name}" shows what it never had`,
        );
        this.count('restored');
      },
      (error: unknown) => {
        assert.ok(error instanceof CallFault, String(error));
        const { tag } = error.error;
        if (tag === 'cancelled') {
          assert.ok(requester.hasEnded);
        } else {
          assert.equal(tag, 'not-found');
          assert.ok(shown.slice(firstShown).includes(undefined), `"${name}" existed all the time`);
        }
        this.count(`open ${tag}`);
      },
    );
    this.#await(outcome);
  }

  /** Drives content that is also on disk out of memory. */
  crowd(): void {
    const { registry } = this.life;
    const snapshot = snapshotOf(this.seeds++, NEIGHBOUR_PAGES);
    const refusal = refusalOf(() => registry.exportPages('u', 'crowd', snapshot, false, this.requester));
    if (refusal === undefined) registry.unexport('u', 'crowd');
  }

  checkSeen(): void {
    for (const name of NAMES) this.open(name);
    const { memoryPages } = this.life.registry.stats();
    assert.ok(memoryPages <= LIMITS.maxMemoryPages, `${memoryPages} pages in memory`);
  }

  /** The newest content of the name that was not removed and whose save has not failed. */
  visible(name: string): Known | undefined {
    return this.known.findLast((known) => known.name === name && !known.isGone);
  }

  /** Notes what each name shows now. */
  note(): void {
    for (const [name, shown] of this.shown) {
      const contents = this.visible(name)?.contents;
      if (shown.at(-1) !== contents) shown.push(contents);
    }
  }

  async settle(): Promise<void> {
    const { registry, memory } = this.life;
    await registry.close();
    await Promise.all(this.outcomes.splice(0));
    memory.failingReads = 0;
    const { memoryPages, savingBytes } = registry.stats();
    assert.deepEqual(
      [memory.held.size, savingBytes],
      [memoryPages, 0],
      'pages held and bytes being saved when all saves have ended',
    );
  }

  async restart(): Promise<void> {
    await this.settle();
    const kept = NAMES.map((name) => this.visible(name)).filter((known) => known?.persistent);
    this.known = kept as Known[];
    this.note();
    const { diskBytes } = this.life.registry.stats();
    this.life = new Life(this.directory, 0, LIMITS);
    this.requester = this.#newRequester();
    assert.equal(this.life.registry.stats().diskBytes, diskBytes);
    const path = join(this.directory, directoryNameOf('t'));
    const files = existsSync(path) ? readdirSync(path) : [];
    assert.equal(files.length, this.known.length, 'files on disk');
    this.count('restarts');
  }

  /** Removes all names: no page and no byte on disk may be left. */
  async clear(): Promise<void> {
    for (const name of NAMES) this.remove(name);
    await this.settle();
    assert.equal(this.life.memory.held.size, 0);
    assert.equal(this.life.registry.stats().diskBytes, 0);
  }

  count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }

  #newRequester(): TestRequester {
    return new TestRequester(this.life.memory, 't', this.#wait);
  }

  #await(outcome: Promise<void>): void {
    // `settle` awaits the outcome later and reports a failed check. Until then, its rejection must not count as unhandled.
    outcome.catch(() => undefined);
    this.outcomes.push(outcome);
  }
}

test('readers and a restart find the version that was saved last', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'pie-overlap-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  let operations = 0;
  const counts: Record<string, number> = {};
  const schedule = fc.array(operation, { maxLength: 200, size: 'max' });
  const waits = fc.infiniteStream(fc.integer({ min: 1, max: 4 }));
  await fc.assert(
    fc.asyncProperty(schedule, waits, async (schedule, waits) => {
      const trial = new Trial(mkdtempSync(join(root, 'kv-')), counts, () => waits.next().value as number);
      for (const each of schedule) await trial.apply(each);
      await trial.restart();
      trial.checkSeen();
      await trial.clear();
      operations += schedule.length;
    }),
    { seed: SEED, numRuns: RUNS },
  );
  t.diagnostic(`seed ${SEED}: ${operations} operations in ${RUNS} schedules: ${JSON.stringify(counts)}`);
  for (const what of ['saved', 'cancelled', 'internal', 'restored', 'open cancelled', 'open not-found']) {
    assert.ok(counts[what], `${what}: ${JSON.stringify(counts)}`);
  }
});
