import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { type PrefixNode, PrefixTree } from './tree.ts';

/* Compares the tree with a list of all texts that it should hold, each with a stamp of its last use. */

const SEED = 20_260_731;
const [RUNS, MIN_OPERATIONS] = process.env.PIE_TEST_ALL ? [200, 100_000] : [70, 35_000];
const PAGE_SIZE = 2;

interface TestPage {
  readonly owner: number;
  /** True when a holder other than the tree has the page. */
  used: boolean;
}

interface Known {
  readonly tenant: string;
  /** All tokens up to the end of the page. */
  readonly text: string;
  readonly depth: number;
  readonly page: TestPage;
  readonly node: PrefixNode<TestPage>;
  /** All pages of a used path get one stamp; within the path the deeper page is older. */
  stamp: number;
}

type Operation =
  | {
      readonly op: 'match';
      readonly tenant: number;
      readonly tokens: number[];
      readonly from: number;
      readonly max: number;
    }
  | { readonly op: 'insert'; readonly tenant: number; readonly tokens: number[]; readonly from: number }
  | { readonly op: 'use' | 'remove'; readonly which: number }
  | { readonly op: 'evict' | 'evict-blocked'; readonly owner: number };

// Few token ids and tenants, so that texts meet often.
const tokens = fc.array(fc.nat(2), { maxLength: 9 });
const tenant = fc.nat(1);
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ op: fc.constant('match' as const), tenant, tokens, from: fc.nat(), max: fc.nat(6) }),
  },
  { weight: 5, arbitrary: fc.record({ op: fc.constant('insert' as const), tenant, tokens, from: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('use' as const), which: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('evict' as const), owner: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('evict-blocked' as const), owner: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('remove' as const), which: fc.nat() }) },
);

class Model {
  readonly tree = new PrefixTree<TestPage>(PAGE_SIZE, ({ owner }) => owner);
  known: Known[] = [];
  /** Every node that the tree ever returned: evicted and removed ones may be named as parents too. */
  readonly nodes: PrefixNode<TestPage>[] = [];
  readonly textOf = new Map<PrefixNode<TestPage>, string>();
  clock = 0;
  lookups = 0;
  hits = 0;
  misses = 0;
  evictions = 0;

  apply(operation: Operation): void {
    switch (operation.op) {
      case 'match':
        this.match(operation);
        break;
      case 'insert':
        this.insert(operation);
        break;
      case 'use':
        this.toggleUse(operation.which);
        break;
      case 'remove':
        this.remove(operation.which);
        break;
      case 'evict':
        this.evict(operation.owner);
        break;
      case 'evict-blocked':
        this.evictBlocked(operation.owner);
        break;
    }
  }

  match({ tenant, tokens, from, max }: Extract<Operation, { op: 'match' }>): void {
    const { name, parent, before } = this.start(tenant, from);
    const expected: Known[] = [];
    let text = before;
    for (let page = 0; parent?.attached !== false && page < max && (page + 1) * PAGE_SIZE <= tokens.length; page++) {
      text += pageText(tokens, page);
      const known = this.find(name, text);
      if (!known) break;
      expected.push(known);
    }
    this.noteUse(expected.at(-1));
    this.lookups++;
    this.hits += expected.length * PAGE_SIZE;
    this.misses += tokens.length - expected.length * PAGE_SIZE;
    const found = this.tree.match(name, parent, Uint32Array.from(tokens), max);
    this.tree.countHits(found.length * PAGE_SIZE);
    assert.deepEqual(
      found.map((node) => node.page),
      expected.map(({ page }) => page),
    );
  }

  insert({ tenant, tokens, from }: Extract<Operation, { op: 'insert' }>): void {
    const { name, parent, before } = this.start(tenant, from);
    const pages = Array.from({ length: Math.floor(tokens.length / PAGE_SIZE) }, () => ({ owner: tenant, used: false }));
    const inserted = this.tree.insert(name, parent, Uint32Array.from(tokens.slice(0, pages.length * PAGE_SIZE)), pages);
    if (parent?.attached === false) {
      assert.deepEqual(inserted, { nodes: [], added: [] });
      return;
    }
    const added: TestPage[] = [];
    let text = before;
    let last = this.find(name, before);
    for (const [i, page] of pages.entries()) {
      text += pageText(tokens, i);
      const node = inserted.nodes[i]!;
      const existing = this.find(name, text);
      if (!existing) {
        added.push(page);
        this.known.push({ tenant: name, text, depth: text.split(';').length - 1, page, node, stamp: 0 });
        this.nodes.push(node);
        this.textOf.set(node, text);
      }
      last = this.find(name, text);
      assert.equal(node.page, last!.page);
      assert.equal(node.depth, last!.depth);
    }
    assert.deepEqual(inserted.added, added);
    this.noteUse(last);
  }

  toggleUse(which: number): void {
    const known = this.known[which % (this.known.length || 1)];
    if (known) known.page.used = !known.page.used;
  }

  evict(owner: number): void {
    const leaves = this.tree.evictLeaves(owner, isFree);
    const count = 1 + (this.clock % 4);
    for (let i = 0; i < count; i++) {
      const expected = this.oldestFirst(owner).find((known) => !known.page.used && !this.hasChildren(known));
      assert.equal(leaves.next().value, expected?.page);
      if (!expected) return;
      this.evictions++;
      this.forget([expected]);
    }
  }

  evictBlocked(owner: number): void {
    const top = this.oldestFirst(owner).find((known) => !known.page.used);
    const removed = top ? this.subtreeOf(top) : [];
    const pages = this.tree.evictBlocked(owner, isFree);
    assert.equal(pages.length, removed.length);
    assert.deepEqual(new Set(pages), new Set(removed.map(({ page }) => page)));
    this.evictions += removed.filter((known) => !known.page.used).length;
    this.forget(removed);
  }

  remove(which: number): void {
    const node = this.nodes[which % (this.nodes.length || 1)];
    if (!node) return;
    const top = this.known.find((known) => known.node === node);
    const removed = top ? this.subtreeOf(top) : [];
    const pages = this.tree.remove(node);
    assert.equal(pages.length, removed.length);
    assert.deepEqual(new Set(pages), new Set(removed.map(({ page }) => page)));
    this.forget(removed);
  }

  check(): void {
    this.tree.check();
    assert.equal(this.tree.size, this.known.length);
    const pages = [...this.tree.pages()];
    for (const owner of [0, 1]) {
      assert.deepEqual(
        pages.filter((page) => page.owner === owner),
        this.oldestFirst(owner).map(({ page }) => page),
      );
    }
    const { lookups, hits: hitTokens, misses: missTokens, evictions } = this;
    assert.deepEqual(this.tree.stats(), { lookups, hitTokens, missTokens, evictions });
  }

  /** Half of the calls continue from a returned node, which may no longer be in the tree. */
  start(tenant: number, from: number): { name: string; parent: PrefixNode<TestPage> | undefined; before: string } {
    const parent = from % 2 ? this.nodes[(from >> 1) % (this.nodes.length || 1)] : undefined;
    return { name: parent?.tenant ?? `tenant ${tenant}`, parent, before: (parent && this.textOf.get(parent)) ?? '' };
  }

  find(tenant: string, text: string): Known | undefined {
    return this.known.find((known) => known.tenant === tenant && known.text === text);
  }

  hasChildren({ tenant, text }: Known): boolean {
    return this.known.some((other) => other.tenant === tenant && other.text !== text && other.text.startsWith(text));
  }

  /** A page and its descendants. */
  subtreeOf({ tenant, text }: Known): Known[] {
    return this.known.filter((known) => known.tenant === tenant && known.text.startsWith(text));
  }

  noteUse(last: Known | undefined): void {
    this.clock++;
    if (!last) return;
    for (const known of this.known) {
      if (known.tenant === last.tenant && last.text.startsWith(known.text)) known.stamp = this.clock;
    }
  }

  oldestFirst(owner: number): Known[] {
    return this.known.filter(({ page }) => page.owner === owner).sort((a, b) => a.stamp - b.stamp || b.depth - a.depth);
  }

  forget(removed: readonly Known[]): void {
    this.known = this.known.filter((known) => !removed.includes(known));
    for (const { node } of removed) assert.equal(node.attached, false);
  }
}

/** Every page ends with a mark, so that a text is a prefix of another exactly when its pages are. */
function pageText(tokens: readonly number[], page: number): string {
  return `${tokens.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).join(',')};`;
}

function isFree(page: TestPage): boolean {
  return !page.used;
}

test(`the tree agrees with a list of texts over ${MIN_OPERATIONS} random operations`, (t) => {
  let operations = 0;
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 2000, size: 'max' }), (schedule) => {
      const model = new Model();
      for (const [i, each] of schedule.entries()) {
        model.apply(each);
        if (i % 16 === 0) model.check();
      }
      model.check();
      operations += schedule.length;
    }),
    { seed: SEED, numRuns: RUNS },
  );
  t.diagnostic(`seed ${SEED}: ${operations} operations in ${RUNS} schedules`);
  assert.ok(operations >= MIN_OPERATIONS, `${operations} operations`);
});
