import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { checkPlacement, placeOf } from './channel-placement.ts';
import { writeStatement } from './channel-values.ts';
import type { WitWorld } from './model.ts';
import { parse } from './parse.ts';
import { resolve } from './resolve.ts';

/** A world of one interface, `store`, with these declarations in WIT. */
const worldOf = (items: string): WitWorld =>
  resolve([parse('test.wit', `package a:b@0.1.0; interface store { ${items} } world w { import store; }`)], 'w');

// The place of a function is the part of the platform that answers a guest's call of it: the sandbox or the runtime.
suite('places of functions', () => {
  test('the runtime answers a function for which the table of places has no entry', () => {
    const [entry] = worldOf('get: func(key: string);').imports;
    const [fn] = entry?.functions ?? [];
    assert.ok(entry && fn);
    assert.equal(placeOf(entry, fn), 'runtime');
  });

  test('a table of places is refused when it names a function that is not in the contract', () => {
    checkPlacement(worldOf('get: func();'), { store: { get: 'sandbox' } });
    assert.throws(
      () => checkPlacement(worldOf('get: func();'), { store: { put: 'sandbox' } }),
      /store put has a place/,
    );
    assert.throws(() => checkPlacement(worldOf('get: func();'), { old: { get: 'sandbox' } }), /old get has a place/);
  });
});

test('a list within a list is written element by element', () => {
  const [entry] = worldOf('put: func(rows: list<tuple<list<string>, u32>>);').imports;
  const [rows] = entry?.functions[0]?.params ?? [];
  assert.ok(rows);
  const written: unknown[] = [];
  const note = (value: unknown) => written.push(value);
  const statement = writeStatement(rows.type, 'a0', () => 0);
  const write = new Function('w', 'a0', statement);
  const value = [
    [['x', 'y'], 1],
    [['z'], 2],
  ];
  write({ count: note, string: note, u32: note }, value);
  // The number of rows comes first. Each row is written as the number of its texts, the texts, and the row's u32.
  const rowsWritten = [
    [2, 'x', 'y', 1],
    [1, 'z', 2],
  ];
  assert.deepEqual(written, [rowsWritten.length, ...rowsWritten.flat()]);
});
