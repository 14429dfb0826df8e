import assert from 'node:assert/strict';
import test from 'node:test';
import { hashTokens, PrefixTree } from './tree.ts';

interface TestPage {
  readonly name: string;
}

const page = (name: string): TestPage => ({ name });
const always = () => true;
/** The owner of a page is the first letter of its name. */
const ownerOf = ({ name }: TestPage): string => name.charAt(0);

test('a lookup finds the longest run of whole pages, and nothing of another tenant', () => {
  const tree = new PrefixTree<TestPage>(2, ownerOf);
  const [a, b] = [page('a'), page('b')];
  const { added } = tree.insert('t', undefined, Uint32Array.of(1, 2, 3, 4), [a, b]);
  assert.deepEqual(added, [a, b]);
  const found = (tenant: string, ...tokens: number[]) => {
    const nodes = tree.match(tenant, undefined, Uint32Array.from(tokens));
    tree.countHits(nodes.length * tree.pageSize);
    return nodes.map((node) => node.page.name);
  };
  assert.deepEqual(found('t', 1, 2, 3, 4, 5, 6), ['a', 'b']);
  assert.deepEqual(found('t', 1, 2, 3, 9), ['a']);
  assert.deepEqual(found('t', 1, 2, 3), ['a']);
  assert.deepEqual(found('t', 3, 4), []);
  assert.deepEqual(found('t', 1), []);
  assert.deepEqual(found('other', 1, 2, 3, 4), []);
  // The six lookups have 20 tokens. They found four pages of two tokens.
  assert.deepEqual(tree.stats(), { lookups: 6, hitTokens: 8, missTokens: 12, evictions: 0 });
});

test('a lookup finds at most as many pages as asked for, and can begin after a node', () => {
  const tree = new PrefixTree<TestPage>(1, ownerOf);
  const { nodes } = tree.insert('t', undefined, Uint32Array.of(1, 2, 3), [page('a'), page('b'), page('c')]);
  assert.equal(tree.match('t', undefined, Uint32Array.of(1, 2, 3), 2).length, 2);
  assert.deepEqual(tree.match('t', nodes[0], Uint32Array.of(2, 3)), nodes.slice(1));
  assert.equal(nodes[2]?.depth, 3);
});

test('the tree keeps the first of two pages with the same tokens', () => {
  const tree = new PrefixTree<TestPage>(1, ownerOf);
  const first = page('first');
  tree.insert('t', undefined, Uint32Array.of(1), [first]);
  const { nodes, added } = tree.insert('t', undefined, Uint32Array.of(1, 2), [page('second'), page('third')]);
  assert.equal(nodes[0]?.page, first);
  assert.deepEqual(
    added.map(({ name }) => name),
    ['third'],
  );
  assert.equal(tree.size, 2);
});

test('the tree distinguishes tokens with equal hashes', () => {
  const [a, b] = collision();
  const tree = new PrefixTree<TestPage>(2, ownerOf);
  tree.insert('t', undefined, a, [page('a')]);
  assert.equal(tree.match('t', undefined, b).length, 0);
  tree.insert('t', undefined, b, [page('b')]);
  assert.equal(tree.match('t', undefined, a)[0]?.page.name, 'a');
  assert.equal(tree.match('t', undefined, b)[0]?.page.name, 'b');
  assert.equal(tree.evictLeaves('a', always).next().value?.name, 'a');
  assert.equal(tree.match('t', undefined, a).length, 0);
  assert.equal(tree.match('t', undefined, b)[0]?.page.name, 'b');
  tree.check();
});

test('evictLeaves removes the least recently used leaf first, and a parent after its children', () => {
  const tree = new PrefixTree<TestPage>(1, ownerOf);
  const { nodes } = tree.insert('t', undefined, Uint32Array.of(1, 2), [page('1'), page('12')]);
  tree.insert('t', nodes[0], Uint32Array.of(3), [page('13')]);
  tree.insert('u', undefined, Uint32Array.of(1), [page('u1')]);
  tree.match('t', undefined, Uint32Array.of(1, 2));
  const order = [];
  for (const evicted of tree.evictLeaves('1', always)) order.push(evicted.name);
  assert.deepEqual(order, ['13', '12', '1']);
  assert.equal(tree.stats().evictions, 3);
  assert.deepEqual(
    [...tree.pages()].map(({ name }) => name),
    ['u1'],
    'another owner keeps its page',
  );
});

test('evictBlocked takes an evictable page with the pages in use after it, which no lookup then finds', () => {
  const tree = new PrefixTree<TestPage>(1, ownerOf);
  const used = page('used');
  const { nodes } = tree.insert('t', undefined, Uint32Array.of(1, 2, 3), [page('free'), used, page('last')]);
  const canEvict = (each: TestPage) => each.name === 'free';
  // The only leaf, 'last', is in use, so 'free' can leave the tree only together with the pages in use after it.
  assert.equal(tree.evictLeaves('f', canEvict).next().value, undefined);
  assert.deepEqual(
    tree.evictBlocked('f', canEvict).map(({ name }) => name),
    ['last', 'used', 'free'],
  );
  assert.equal(tree.size, 0);
  assert.equal(nodes[1]?.attached, false);
  assert.deepEqual(tree.insert('t', nodes[1], Uint32Array.of(9), [page('x')]), { nodes: [], added: [] });
  assert.deepEqual(tree.match('t', nodes[1], Uint32Array.of(3)), []);
  assert.deepEqual(tree.evictBlocked('f', always), []);
  tree.check();
});

test('remove takes a page with the pages after it, and counts no eviction', () => {
  const tree = new PrefixTree<TestPage>(1, ownerOf);
  const { nodes } = tree.insert('t', undefined, Uint32Array.of(1, 2, 3), [page('1'), page('12'), page('123')]);
  const removed = tree.remove(nodes[1]!);
  assert.deepEqual(
    removed.map(({ name }) => name),
    ['123', '12'],
  );
  assert.deepEqual(tree.remove(nodes[1]!), []);
  assert.equal(tree.match('t', undefined, Uint32Array.of(1, 2)).length, 1);
  assert.equal(tree.stats().evictions, 0);
  tree.check();
});

test('the tree keeps its own copy of the tokens', () => {
  const tree = new PrefixTree<TestPage>(2, ownerOf);
  const tokens = Uint32Array.of(1, 2);
  tree.insert('t', undefined, tokens, [page('a')]);
  tokens[0] = 7;
  assert.equal(tree.match('t', undefined, Uint32Array.of(1, 2)).length, 1);
});

test('a number of tokens that does not match the pages, and pages of 0 slots, are refused', () => {
  const tree = new PrefixTree<TestPage>(2, ownerOf);
  assert.throws(() => tree.insert('t', undefined, Uint32Array.of(1), [page('a')]), RangeError);
  assert.throws(() => new PrefixTree(0, ownerOf), RangeError);
});

/** Two pages of two tokens with the same hash, found by search. */
function collision(): [Uint32Array, Uint32Array] {
  const seen = new Map<number, Uint32Array>();
  for (let a = 0; a < 1000; a++) {
    for (let b = 0; b < 1000; b++) {
      const tokens = Uint32Array.of(a, b);
      const hash = hashTokens(tokens);
      const other = seen.get(hash);
      if (other) return [other, tokens];
      seen.set(hash, tokens);
    }
  }
  throw new Error('a million pages and no two with the same hash');
}
