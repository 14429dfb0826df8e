import assert from 'node:assert/strict';
import {
  appendFileSync,
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import fc from 'fast-check';
import { RIGHTS_CASES } from '#wit/generated/host.ts';
import { type Caller, directoryNameOf, type EntryKind, fileNameOf } from './entry.ts';
import { assertExpected, type KnownName, Model, mayRead } from './testing/model.ts';
import { contentsOf, PAGE_BYTES, snapshotOf, type TestSnapshot } from './testing/page-memory.ts';
import { Life, laterRefusalOf, refusalOf } from './testing/registries.ts';

/*
 * Makes random calls to the registry, and compares its answers with those of a plain list of names. Between calls, the host restarts with either of
 * two models, and the test damages the files on disk.
 */

const SEED = 271_828;
const [RUNS, MIN_OPERATIONS] = process.env.PIE_TEST_ALL ? [240, 100_000] : [40, 16_000];
const LIMITS = {
  maxTenantPages: 20,
  maxTenantEntries: 9,
  maxSnapshotPages: 5,
  maxMemoryPages: 24,
  bufferBytes: 2 * PAGE_BYTES,
};

const CALLERS: readonly Caller[] = [
  { tenant: 't', inferlet: 'one', functionName: 'f' },
  { tenant: 't', inferlet: 'two', functionName: 'f' },
  { tenant: 't', inferlet: 'three', functionName: 'g' },
  { tenant: '../t', inferlet: 'four', functionName: 'f' },
  { tenant: 'system', inferlet: 'five', functionName: 'f' },
];
const NAMES = ['a', 'b', 'c/d', '..', '../x', 'system/a', 'system/../b', 'x'.repeat(128)];
const HOSTILE = ['', '\0', 'a\0', 'ü', 'a b', '😀', '\ud800', 'x'.repeat(129), 'x'.repeat(10_000), '..\\x'];

const who = fc.nat(CALLERS.length - 1);
const name = fc.oneof(
  { weight: 30, arbitrary: fc.constantFrom(...NAMES) },
  { weight: 1, arbitrary: fc.constantFrom(...HOSTILE) },
);
const pages = fc.nat(6);
const seed = fc.nat(0xffff);
const rights = fc.constantFrom(...RIGHTS_CASES);
// Few saves are persistent, because each of them waits for the disk.
const persistent = fc.nat(7).map((dice) => dice === 0);

const DAMAGES = ['flip a bit', 'cut', 'lengthen', 'replace by another file'] as const;

const operation = fc.oneof(
  { weight: 12, arbitrary: fc.record({ op: fc.constant('export' as const), who, name, pages, seed, persistent }) },
  { weight: 14, arbitrary: fc.record({ op: fc.constant('import' as const), who, name }) },
  { weight: 7, arbitrary: fc.record({ op: fc.constant('unexport' as const), who, name }) },
  {
    weight: 12,
    arbitrary: fc.record({ op: fc.constant('save' as const), who, name, pages, seed, persistent, rights }),
  },
  { weight: 16, arbitrary: fc.record({ op: fc.constant('open' as const), who, name, write: fc.boolean() }) },
  { weight: 6, arbitrary: fc.record({ op: fc.constant('unlock' as const), who, name }) },
  { weight: 5, arbitrary: fc.record({ op: fc.constant('remove' as const), who, name }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('list' as const), who, name }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('release' as const), who }) },
  {
    weight: 1,
    arbitrary: fc.record({ op: fc.constant('damage' as const), which: fc.nat(), how: fc.nat(3), where: fc.nat() }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('restart' as const), model: fc.constantFrom(0, 0, 0, 1) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;
type Of<Op extends Operation['op']> = Extract<Operation, { op: Op }>;

class Trial {
  readonly directory: string;
  readonly model = new Model(LIMITS);
  life: Life;
  /** True when a file has another size than the registry wrote. */
  hasResizedFiles = false;
  readonly counts: Record<string, number>;

  constructor(directory: string, counts: Record<string, number>) {
    this.directory = directory;
    this.counts = counts;
    this.life = new Life(directory, 0, LIMITS);
  }

  async apply(operation: Operation): Promise<void> {
    this.#count(operation.op);
    switch (operation.op) {
      case 'export':
        await this.export(operation);
        break;
      case 'save':
        await this.save(operation);
        break;
      case 'import':
        await this.import(operation);
        break;
      case 'open':
        await this.open(operation);
        break;
      case 'unexport':
        this.unexport(operation);
        break;
      case 'remove':
        this.remove(operation);
        break;
      case 'unlock':
        this.unlock(operation);
        break;
      case 'list':
        this.list(operation);
        break;
      case 'release':
        this.life.registry.releaseInferlet(callerOf(operation.who).inferlet);
        this.model.releaseInferlet(callerOf(operation.who).inferlet);
        break;
      case 'damage':
        this.damage(operation);
        break;
      case 'restart':
        this.model.restart(operation.model);
        this.life = new Life(this.directory, operation.model === 0 ? 0 : 1, LIMITS);
        this.hasResizedFiles = false;
        break;
    }
  }

  async export({ who, name, pages, seed, persistent }: Of<'export'>): Promise<void> {
    const { tenant } = callerOf(who);
    const snapshot = snapshotOf(seed, pages);
    const expected = this.model.expectExport(tenant, name, pages);
    let saved: Promise<void> | undefined;
    const refusal = refusalOf(() => {
      saved = this.life.registry.exportPages(tenant, name, snapshot, persistent, this.life.requester);
    });
    assertExpected(refusal, expected, `export ${name}`);
    if (refusal !== undefined) return;
    assert.equal(saved !== undefined, persistent);
    await saved;
    this.#put(tenant, 'export', name, snapshot, persistent, undefined);
  }

  async save({ who, name, pages, seed, persistent, rights }: Of<'save'>): Promise<void> {
    const caller = callerOf(who);
    const snapshot = snapshotOf(seed, pages);
    const expected = this.model.expectSave(caller, name, pages, persistent, rights);
    let saved: Promise<void> | undefined;
    const refusal = refusalOf(() => {
      saved = this.life.registry.saveFile(caller, name, snapshot, { persistent, rights }, this.life.requester);
    });
    assertExpected(refusal, expected, `save ${name}`);
    if (refusal !== undefined) return;
    await saved;
    const owner = this.model.find(caller.tenant, 'file', name)?.file?.owner ?? caller.functionName;
    this.#put(caller.tenant, 'file', name, snapshot, persistent, { owner, rights });
  }

  async import({ who, name }: Of<'import'>): Promise<void> {
    const { tenant } = callerOf(who);
    const expected = this.model.expectImport(tenant, name);
    await this.#load(this.model.find(tenant, 'export', name), expected, `import ${name}`, () =>
      this.life.registry.importPages(tenant, name, this.life.requester, contentsOf),
    );
  }

  async open({ who, name, write }: Of<'open'>): Promise<void> {
    const caller = callerOf(who);
    const expected = this.model.expectOpen(caller, name, write);
    const known = this.model.find(caller.tenant, 'file', name);
    const opened = await this.#load(known, expected, `open ${name}`, () =>
      this.life.registry.openFile(caller, name, write, this.life.requester, contentsOf),
    );
    if (opened && known && write) known.lock = caller.inferlet;
  }

  unexport({ who, name }: Of<'unexport'>): void {
    const { tenant } = callerOf(who);
    const known = this.model.find(tenant, 'export', name);
    const refusal = refusalOf(() => this.life.registry.unexport(tenant, name));
    assertExpected(refusal, this.model.expectUnexport(tenant, name), `unexport ${name}`);
    if (refusal === undefined && known) this.model.remove(known);
  }

  remove({ who, name }: Of<'remove'>): void {
    const caller = callerOf(who);
    const known = this.model.find(caller.tenant, 'file', name);
    const refusal = refusalOf(() => this.life.registry.removeFile(caller, name));
    assertExpected(refusal, this.model.expectRemove(caller, name), `remove ${name}`);
    if (refusal === undefined && known) this.model.remove(known);
  }

  unlock({ who, name }: Of<'unlock'>): void {
    const caller = callerOf(who);
    const refusal = refusalOf(() => this.life.registry.unlockFile(caller, name));
    assert.equal(refusal, HOSTILE.includes(name) ? 'invalid-argument' : undefined);
    const known = this.model.find(caller.tenant, 'file', name);
    if (known?.lock === caller.inferlet) known.lock = undefined;
  }

  list({ who, name }: Of<'list'>): void {
    const caller = callerOf(who);
    const prefix = name.slice(0, 2);
    const exports = this.model.expectList('export', ({ tenant }) => tenant === caller.tenant);
    this.#compareList(this.life.registry.listExports(caller.tenant), exports, (known) => {
      const { name, pages, tokens, nextPosition, persistent } = known;
      return { name, pages, tokens, nextPosition, persistent };
    });
    const files = this.model.expectList(
      'file',
      (known) =>
        known.name.startsWith(prefix) &&
        (known.tenant === caller.tenant || known.name.startsWith('system/')) &&
        mayRead(caller, known),
    );
    this.#compareList(this.life.registry.listFiles(caller, prefix), files, (known) => {
      const { name, tokens, nextPosition, persistent, file, lock } = known;
      return {
        name,
        tokens,
        nextPosition,
        persistent,
        rights: file?.rights,
        owner: file?.owner,
        locked: lock !== undefined,
      };
    });
  }

  /** Damages a file in one of the ways of `DAMAGES`. */
  damage({ which, how, where }: Of<'damage'>): void {
    const intact = this.model.known.filter(({ persistent, damaged }) => persistent && !damaged);
    const known = intact[which % (intact.length || 1)];
    const other = intact[where % (intact.length || 1)];
    if (!known || !other) return;
    const path = this.#pathOf(known);
    const { size } = statSync(path);
    const damage = DAMAGES[how];
    if (damage === 'flip a bit') {
      const bytes = readFileSync(path);
      const at = where % size;
      bytes[at] = (bytes[at] as number) ^ (1 << (where % 8));
      writeFileSync(path, bytes);
    } else if (damage === 'cut') {
      truncateSync(path, where % size);
    } else if (damage === 'lengthen') {
      appendFileSync(path, 'x');
    } else {
      if (other === known) return;
      copyFileSync(this.#pathOf(other), path);
    }
    known.damaged = true;
    // Unless the content is in memory, the registry may not have read the file yet, and may or may not list it.
    known.doubtful = !known.inMemory;
    this.hasResizedFiles ||= damage !== 'flip a bit';
  }

  check(): void {
    assert.equal(this.life.memory.held.size, this.model.memoryPages(), 'pages held');
    const stats = this.life.registry.stats();
    assert.equal(stats.memoryPages, this.model.memoryPages());
    assert.ok(stats.memoryPages <= LIMITS.maxMemoryPages);
    let bytes = 0;
    const files = new Set<string>();
    for (const tenant of readdirSync(this.directory)) {
      for (const file of readdirSync(join(this.directory, tenant))) {
        bytes += statSync(join(this.directory, tenant, file)).size;
        files.add(join(this.directory, tenant, file));
      }
    }
    if (!this.hasResizedFiles) assert.equal(stats.diskBytes, bytes, 'bytes on disk');
    const persistent = this.model.known.filter((known) => known.persistent);
    assert.deepEqual(files, new Set(persistent.map((known) => this.#pathOf(known))));
  }

  async #load(
    known: KnownName | undefined,
    expected: readonly (string | undefined)[],
    what: string,
    load: () => unknown,
  ): Promise<boolean> {
    let contents: unknown;
    const wasInMemory = known?.inMemory;
    const refusal = await laterRefusalOf(async () => {
      const loaded = load();
      if (wasInMemory) assert.ok(!(loaded instanceof Promise), `${what} needs no disk`);
      contents = await loaded;
    });
    assertExpected(refusal, expected, what);
    if (refusal !== undefined) this.#count(`refused ${refusal}`);
    if (refusal !== undefined || !known) return false;
    assert.deepEqual(contents, known.contents, `${what} gives what was kept`);
    if (!known.inMemory) this.#count('restored');
    this.model.use(known);
    return true;
  }

  #put(
    tenant: string,
    kind: EntryKind,
    name: string,
    snapshot: TestSnapshot,
    persistent: boolean,
    file: KnownName['file'],
  ): void {
    const { tokens, nextPosition } = snapshot;
    const contents = contentsOf(snapshot);
    this.model.put({
      tenant,
      kind,
      name,
      contents,
      pages: snapshot.pages.length,
      tokens,
      nextPosition,
      persistent,
      file,
    });
    if (persistent) this.#count('written');
  }

  #compareList(
    actual: readonly { readonly name: string }[],
    expected: { must: KnownName[]; may: KnownName[] },
    info: (known: KnownName) => object,
  ): void {
    const doubtful = new Set(expected.may.filter((known) => known.doubtful).map((known) => known.name));
    const isCertain = ({ name }: { readonly name: string }) => !doubtful.has(name);
    assert.deepEqual(actual.filter(isCertain), expected.must.filter(isCertain).map(info));
    const names = actual.map(({ name }) => name);
    assert.deepEqual(names, [...names].sort());
    for (const name of names)
      assert.ok(
        expected.may.some((known) => known.name === name),
        `${name} is listed`,
      );
  }

  #pathOf({ tenant, kind, name }: KnownName): string {
    return join(this.directory, directoryNameOf(tenant), fileNameOf(kind, name));
  }

  #count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }
}

function callerOf(who: number): Caller {
  return CALLERS[who] as Caller;
}

test(`the registry and a plain list of names agree over ${MIN_OPERATIONS} random operations, restarts and damages`, async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'pie-registry-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  let operations = 0;
  const counts: Record<string, number> = {};
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 1000, size: 'max' }), async (schedule) => {
      const directory = mkdtempSync(join(root, 'kv-'));
      const trial = new Trial(directory, counts);
      for (const [i, each] of schedule.entries()) {
        await trial.apply(each);
        if (i % 8 === 0) trial.check();
      }
      trial.check();
      rmSync(directory, { recursive: true });
      operations += schedule.length;
    }),
    { seed: SEED, numRuns: RUNS },
  );
  t.diagnostic(`seed ${SEED}: ${operations} operations in ${RUNS} schedules: ${JSON.stringify(counts)}`);
  assert.deepEqual(readdirSync(root), []);
  assert.ok(operations >= MIN_OPERATIONS, `${operations} operations`);
});
