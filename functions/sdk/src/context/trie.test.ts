import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { childrenOf, treeMask, trieOf } from './trie.ts';

const lists = fc.array(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 6 }), {
  minLength: 1,
  maxLength: 12,
});

describe('trieOf', () => {
  it('has every list as a path, and each common beginning once', () => {
    fc.assert(
      fc.property(lists, (all) => {
        const { tokens, parents, depths, paths } = trieOf(all);
        assert.deepEqual(
          paths.map((path) => path.map((node) => tokens[node])),
          all,
        );
        const prefixes = new Set(all.flatMap((list) => list.map((_, i) => list.slice(0, i + 1).join())));
        assert.equal(tokens.length, prefixes.size);
        // Node −1 is the root, before the first token of every list.
        for (const path of paths) {
          path.forEach((node, i) => {
            assert.equal(parents[node], i === 0 ? -1 : path[i - 1]);
            assert.equal(depths[node], i + 1);
          });
        }
        // Sorted by node, the pairs of node and parent from `childrenOf` give the list `parents` again.
        const children = [...childrenOf(parents)].flatMap(([parent, nodes]) => nodes.map((node) => [node, parent]));
        assert.deepEqual(
          children.sort(([a = 0], [b = 0]) => a - b).map(([, parent]) => parent),
          parents,
        );
      }),
      { seed: 15, numRuns: 100 },
    );
  });
});

describe('treeMask', () => {
  it('shows each input the filled slots before the tree, the ancestors of the input, and the input itself', () => {
    fc.assert(
      fc.property(lists, fc.integer({ min: 0, max: 40 }), (all, filled) => {
        const { parents } = trieOf(all);
        const { runs, rowLengths } = treeMask(filled, parents);
        let at = 0;
        rowLengths.forEach((length, row) => {
          // The runs of a row are hidden and visible keys in turn; the first run is hidden.
          const seen: boolean[] = [];
          for (let i = 0; i < length; i++) seen.push(...new Array<boolean>(runs[at + i] as number).fill(i % 2 === 1));
          at += length;
          // The keys of a row are the filled slots, the root (input 0) and the nodes (node i is input i + 1).
          const expected = new Array<boolean>(filled + 1 + parents.length).fill(false).fill(true, 0, filled + 1);
          for (let node = row - 1; node >= 0; node = parents[node] as number) expected[filled + 1 + node] = true;
          assert.deepEqual(seen, expected);
        });
        assert.equal(at, runs.length);
      }),
      { seed: 16, numRuns: 100 },
    );
  });
});
