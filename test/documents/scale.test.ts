import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { runInNewContext } from 'node:vm';
import { createKeys } from '#scheduler/keys.ts';

const SCALE = new URL('../../docs/scale.md', import.meta.url);

/** The calculations in a document's code spans, such as `2 × 3 = 6`. `unit` is the unit of the result's last digit. */
const calculations = (text: string) =>
  [...text.matchAll(/`([\d .()×/+-]+) = (\d+(?:\.(\d+))?)`/g)].map(([, sum = '', result = '', digits = '']) => ({
    sum,
    result: Number(result),
    unit: 10 ** -digits.length,
  }));

const compute = (expression: string): number => runInNewContext(expression.replaceAll('×', '*'));

test('the calculations of docs/scale.md are right', async () => {
  const text = await readFile(SCALE, 'utf8');
  const found = calculations(text);
  assert.ok(found.length >= 20, `${found.length} calculations`);
  // Rounding changes a result by at most half a unit. The rest of the tolerance is for floating-point errors.
  const wrong = found.filter(({ sum, result, unit }) => Math.abs(compute(sum) - result) > 0.51 * unit);
  assert.deepEqual(
    wrong.map(({ sum, result }) => `${sum} = ${compute(sum)}, not ${result}`),
    [],
  );
  // A code span with an equals sign that `calculations` does not match would go unchecked.
  assert.equal([...text.matchAll(/`[^`]* = [^`]*`/g)].length, found.length);
});

test('docs/scale.md names a place for each family of keys', async () => {
  const text = await readFile(SCALE, 'utf8');
  const [, table = ''] = /^\| Keys \(.*\n((?:\|.*\n)*)/m.exec(text) ?? [];
  const named = new Set([...table.matchAll(/`([a-z-]+)(?::[^`]*)?`/g)].map(([, family]) => family));
  const { prefix, ...keys } = createKeys('pie');
  const families = Object.values(keys).map((key) => {
    const full = typeof key === 'string' ? key : key('a', 'b', 'c');
    // The family is the first part after the prefix.
    return full.slice(prefix.length + 1).split(':')[0];
  });
  assert.deepEqual(
    families.filter((family) => !named.has(family)),
    [],
  );
});
