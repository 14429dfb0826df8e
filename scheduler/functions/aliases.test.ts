import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { randomFrom } from '#test/harness/random.ts';
import {
  type AliasState,
  aliasNameFault,
  chooseVersion,
  heaviest,
  isReference,
  lastOf,
  type Share,
  sharesFault,
  stepBack,
} from './aliases.ts';

const sharesOf = (weights: readonly number[]): Share[] =>
  weights.map((weight, i) => ({ version: `${i}`.padStart(12, '0'), weight }));

/** Whole percents that sum to 100. */
const weights = fc
  .uniqueArray(fc.integer({ min: 1, max: 99 }), { minLength: 0, maxLength: 9 })
  .map((cuts) =>
    [0, ...cuts.sort((a, b) => a - b), 100].flatMap((cut, i, all) => (i === 0 ? [] : [cut - (all[i - 1] ?? 0)])),
  );

describe('shares of versions', () => {
  test('each version gets its share of the draws, within four standard deviations', () => {
    fc.assert(
      fc.property(weights, fc.integer(), (parts, seed) => {
        const shares = sharesOf(parts);
        assert.equal(sharesFault(shares), null);
        const next = randomFrom(seed);
        const draws = 2000;
        const counts = new Map<string, number>();
        for (let i = 0; i < draws; i++) {
          const version = chooseVersion(shares, next()) ?? '';
          counts.set(version, (counts.get(version) ?? 0) + 1);
        }
        for (const { version, weight } of shares) {
          const p = weight / 100;
          const bound = 4 * Math.sqrt(draws * p * (1 - p));
          assert.ok(Math.abs((counts.get(version) ?? 0) - draws * p) <= bound, `${weight} %: ${counts.get(version)}`);
        }
      }),
      { seed: 20261120, numRuns: 40 },
    );
  });

  test('a draw at either end of the range picks a version, and the heaviest version is found', () => {
    const shares = sharesOf([90, 10]);
    assert.equal(chooseVersion(shares, 0), shares[0]?.version);
    assert.equal(chooseVersion(shares, 0.8999), shares[0]?.version);
    assert.equal(chooseVersion(shares, 0.9), shares[1]?.version);
    const highestDraw = 1 - Number.EPSILON / 2;
    assert.equal(chooseVersion(shares, highestDraw), shares[1]?.version);
    const unequal = sharesOf([10, 80, 10]);
    assert.equal(heaviest(unequal), unequal[1]?.version);
    assert.equal(chooseVersion([], 0.5), undefined);
  });

  test('faults in shares are reported with their fields, and faulty names and references are refused', () => {
    const [a, b] = ['a'.repeat(12), 'b'.repeat(12)];
    const faults: [Share[], string][] = [
      [[], '/shares'],
      [[{ version: a, weight: 99 }], '/shares'],
      [
        [
          { version: a, weight: 0 },
          { version: b, weight: 100 },
        ],
        '/shares/0/weight',
      ],
      [
        [
          { version: a, weight: 50.5 },
          { version: b, weight: 49.5 },
        ],
        '/shares/0/weight',
      ],
      [
        [
          { version: a, weight: 50 },
          { version: a, weight: 50 },
        ],
        '/shares/1/version',
      ],
      [sharesOf(Array.from({ length: 11 }, () => 9)), '/shares'],
    ];
    for (const [shares, field] of faults) assert.equal(sharesFault(shares)?.field, field, JSON.stringify(shares));
    for (const name of ['live', 'v1.2', 'canary', 'beta_2', 'x']) assert.equal(aliasNameFault(name), null, name);
    for (const name of ['', 'none', 'Upper', '1st', 'feed', 'abcdefabcdef', 'a/b', 'a@b', 'ä', 'x'.repeat(64)])
      assert.ok(aliasNameFault(name), name);
    for (const reference of ['', 'live', 'v1.2', '0123', 'abcdefabcdef']) assert.ok(isReference(reference), reference);
    for (const reference of ['Upper', '012', 'a b', 'a@b', 'x'.repeat(64), 'f'.repeat(65)])
      assert.ok(!isReference(reference));
  });
});

describe('rollback of an alias', () => {
  /** The history (newest first) after a list of acts. An act is the version that a set names, or null for a rollback. */
  function historyOf(acts: readonly (string | null)[]): AliasState[] {
    const history: AliasState[] = [];
    for (const act of acts) {
      const back = act === null ? stepBack(history) : null;
      if (act === null && back === null) continue;
      const shares = back?.shares ?? [{ version: act ?? '', weight: 100 }];
      const restores = back === null ? {} : { restores: back.revision };
      history.unshift({ shares, revision: history.length + 1, at: 0, by: 'k', ...restores });
    }
    return history;
  }
  const servedVersion = (history: readonly AliasState[]) => history[0]?.shares[0]?.version;

  test('each rollback goes one step back, also past a rollback and from a later set', () => {
    assert.equal(servedVersion(historyOf(['a', 'b', 'c', null])), 'b');
    assert.equal(servedVersion(historyOf(['a', 'b', 'c', null, null])), 'a');
    assert.equal(stepBack(historyOf(['a', 'b', 'c', null, null])), null);
    assert.equal(servedVersion(historyOf(['a', 'b', null, 'c', null])), 'a', 'b was undone');
    assert.equal(servedVersion(historyOf(['a', 'b', null, 'c', 'd', null])), 'c');
    assert.equal(stepBack([]), null);
  });

  test('rollbacks undo sets in reverse order, like a stack', () => {
    fc.assert(
      fc.property(fc.array(fc.option(fc.constantFrom('a', 'b', 'c', 'd')), { maxLength: 40, size: 'max' }), (acts) => {
        const stack: string[] = [];
        for (const act of acts) {
          if (act !== null) stack.push(act);
          else if (stack.length > 1) stack.pop();
        }
        assert.equal(servedVersion(historyOf(acts)), stack.at(-1));
      }),
      { seed: 20261120, numRuns: 300 },
    );
  });

  test('a rollback to a version finds the last state that served only that version', () => {
    const history = historyOf(['a', 'b', 'a', 'c']);
    assert.equal(lastOf('a', history)?.revision, 3);
    assert.equal(lastOf('x', history), null);
  });
});
