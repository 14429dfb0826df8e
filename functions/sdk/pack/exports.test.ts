import assert from 'node:assert/strict';
import { it } from 'node:test';
import { packed, unpacked } from './exports.ts';

const source = { '.': './src/index.ts', './raw': './src/raw.ts', './package.json': './package.json' };

it('names what is compiled when packed, and the source afterwards', () => {
  const exports = packed(source);
  assert.deepEqual(exports['./raw'], { types: './dist/raw.d.ts', default: './dist/raw.js' });
  assert.equal(exports['./package.json'], './package.json');
  assert.deepEqual(unpacked(exports), source);
});

it('changes nothing the second time', () => {
  assert.deepEqual(packed(packed(source)), packed(source));
  assert.deepEqual(unpacked(unpacked(source)), source);
});
