import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { checkPlacement, placeOf } from './channel-placement.ts';
import type { WitWorld } from './model.ts';
import { parse } from './parse.ts';
import { resolve } from './resolve.ts';

/** A world of one interface, `store`, with these items. */
const worldOf = (items: string): WitWorld =>
  resolve([parse('test.wit', `package a:b@0.1.0; interface store { ${items} } world w { import store; }`)], 'w');

suite('places of the calls', () => {
  test('the runtime answers a function that has no place', () => {
    const [entry] = worldOf('get: func(key: string);').imports;
    const [fn] = entry?.functions ?? [];
    assert.ok(entry && fn);
    assert.equal(placeOf(entry, fn), 'runtime');
  });

  test('a place of a function that the contract does not have is refused', () => {
    checkPlacement(worldOf('get: func();'), { store: { get: 'sandbox' } });
    assert.throws(
      () => checkPlacement(worldOf('get: func();'), { store: { put: 'sandbox' } }),
      /store put has a place/,
    );
    assert.throws(() => checkPlacement(worldOf('get: func();'), { old: { get: 'sandbox' } }), /old get has a place/);
  });
});
