import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import fc from 'fast-check';
import { CallFault } from '../fault.ts';
import { directoryNameOf } from './names.ts';
import type { Caller } from './rights.ts';
import { contentsOf, snapshotOf } from './testing/page-memory.ts';
import { Life, refusalOf } from './testing/registries.ts';

/* Saves that overlap, are replaced or removed under way: the content visible at once, and the final files, are those of the last call. */

const SEED = 161_803;
const RUNS = 120;
const CALLER: Caller = { tenant: 't', inferlet: 'one', functionName: 'f' };
const NAMES = ['a', 'b', 'c'];

const name = fc.constantFrom(...NAMES);
const operation = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ op: fc.constant('save' as const), name, pages: fc.nat(3), persistent: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('remove' as const), name }) },
  { weight: 5, arbitrary: fc.record({ op: fc.constant('turns' as const), turns: fc.integer({ min: 1, max: 8 }) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('pause' as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('restart' as const) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

interface Known {
  readonly contents: unknown;
  readonly pages: number;
  readonly persistent: boolean;
}

class Trial {
  readonly directory: string;
  life: Life;
  known = new Map<string, Known>();
  /** Number of removals of each name. */
  readonly removals = new Map<string, number>();
  seeds = 0;
  readonly counts: Record<string, number>;
  readonly outcomes: Promise<void>[] = [];

  constructor(directory: string, counts: Record<string, number>) {
    this.directory = directory;
    this.life = new Life(directory);
    this.counts = counts;
  }

  async apply(operation: Operation): Promise<void> {
    switch (operation.op) {
      case 'save':
        this.save(operation.name, operation.pages, operation.persistent);
        break;
      case 'remove': {
        const refusal = refusalOf(() => this.life.registry.removeFile(CALLER, operation.name));
        assert.equal(refusal, this.known.delete(operation.name) ? undefined : 'not-found');
        this.removals.set(operation.name, (this.removals.get(operation.name) ?? 0) + 1);
        break;
      }
      case 'turns':
        for (let turn = 0; turn < operation.turns; turn++) await setImmediate();
        break;
      case 'pause':
        await setTimeout(1);
        break;
      case 'restart':
        await this.restart();
        break;
    }
    this.checkSeen();
  }

  save(name: string, pages: number, persistent: boolean): void {
    const { registry, memory } = this.life;
    if (this.known.has(name)) registry.openFile(CALLER, name, true, memory.restore);
    const snapshot = snapshotOf(this.seeds++, pages);
    const saved = registry.saveFile(CALLER, name, snapshot, { persistent, rights: 'private' });
    assert.equal(saved !== undefined, persistent);
    this.known.set(name, { contents: contentsOf(snapshot), pages, persistent });
    const removals = this.removals.get(name);
    const outcome = (saved ?? Promise.resolve()).then(
      () => this.count(persistent ? 'saved' : 'kept'),
      (error: unknown) => {
        assert.ok(error instanceof CallFault && error.error.tag === 'cancelled', String(error));
        assert.notEqual(this.removals.get(name), removals, `"${name}" was not removed since`);
        this.count('cancelled');
      },
    );
    // `settle`, which may come later, reports a failed check.
    outcome.catch(() => undefined);
    this.outcomes.push(outcome);
  }

  /** Checks that opening a name gives the content saved last, on disk or not. */
  checkSeen(): void {
    for (const name of NAMES) {
      const known = this.known.get(name);
      const { registry, memory } = this.life;
      if (!known)
        assert.equal(
          refusalOf(() => registry.openFile(CALLER, name, false, memory.restore)),
          'not-found',
        );
      else assert.deepEqual(contentsOf(registry.openFile(CALLER, name, false, memory.restore)), known.contents);
    }
  }

  async settle(): Promise<void> {
    await this.life.registry.close();
    await Promise.all(this.outcomes.splice(0));
    let pages = 0;
    for (const known of this.known.values()) pages += known.pages;
    assert.equal(this.life.memory.held.size, pages, 'pages held when all saves have ended');
  }

  async restart(): Promise<void> {
    await this.settle();
    for (const [name, { persistent }] of this.known) if (!persistent) this.known.delete(name);
    const { diskBytes } = this.life.registry.stats();
    this.life = new Life(this.directory);
    assert.equal(this.life.registry.stats().diskBytes, diskBytes);
    const path = join(this.directory, directoryNameOf('t'));
    const files = readdirSync(this.directory).length === 0 ? [] : readdirSync(path);
    assert.equal(files.length, this.known.size, 'files on disk');
    this.count('restarts');
  }

  count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }
}

test('what was saved last is what is seen, and what a restart finds', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'pie-overlap-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  let operations = 0;
  const counts: Record<string, number> = {};
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 200, size: 'max' }), async (schedule) => {
      const trial = new Trial(mkdtempSync(join(root, 'kv-')), counts);
      for (const each of schedule) await trial.apply(each);
      await trial.restart();
      trial.checkSeen();
      operations += schedule.length;
    }),
    { seed: SEED, numRuns: RUNS },
  );
  t.diagnostic(`seed ${SEED}: ${operations} operations in ${RUNS} schedules: ${JSON.stringify(counts)}`);
  assert.ok(counts.saved && counts.cancelled, JSON.stringify(counts));
});
