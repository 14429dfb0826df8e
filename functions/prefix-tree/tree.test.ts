import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { emptyTree, evict, insert, savedBelow, size, type TreeNode } from './tree.ts';

/** The texts that the edges spell from the root to each node. */
const textsOf = (node: TreeNode, before = ''): string[] => {
  const text = before + node.edge.join('');
  return [text, ...node.children.flatMap((child) => textsOf(child, text))];
};

describe('the radix tree', () => {
  const text = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 12 });

  it('holds every text and each common beginning once, and forks at the first different token', () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 12 }), (texts) => {
        const root = emptyTree();
        texts.forEach((tokens, i) => void insert(root, tokens, i + 1));
        const found = new Set(textsOf(root));
        for (const tokens of texts) assert.ok(found.has(tokens.join('')));
        const beginnings = new Set(texts.flatMap((tokens) => tokens.map((_, i) => tokens.slice(0, i + 1).join(''))));
        assert.equal(size(root), beginnings.size);
        const check = ({ children }: TreeNode): void => {
          assert.equal(new Set(children.map(({ edge }) => edge[0])).size, children.length);
          for (const child of children) {
            assert.ok(child.edge.length > 0);
            check(child);
          }
        };
        check(root);
      }),
      { seed: 11, numRuns: 300 },
    );
  });

  it('finds the saved text below a node that splits its edge', () => {
    const root = emptyTree();
    insert(root, [1, 2, 3, 4], 1).saved = true;
    assert.deepEqual(savedBelow(insert(root, [1, 2], 2)), [3, 4]);
    assert.equal(savedBelow(insert(root, [1, 2, 9], 3)), undefined);
  });

  it('evicts the least recently used texts first, and leaves before their parents', () => {
    const root = emptyTree();
    insert(root, [1, 2, 3], 1);
    insert(root, [1, 2, 4], 2);
    insert(root, [5, 6], 3);
    assert.equal(size(root), 6);
    assert.deepEqual(evict(root, 5), [[1, 2, 3]]);
    assert.deepEqual(evict(root, 2), [
      [1, 2, 4],
      [1, 2],
    ]);
    assert.deepEqual(evict(root, 0), [[5, 6]]);
    assert.deepEqual(root.children, []);
  });
});
