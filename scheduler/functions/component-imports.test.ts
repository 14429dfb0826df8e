import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { importedInterfaces } from './component-imports.ts';

const PREAMBLE = [0x00, 0x61, 0x73, 0x6d, 0x0d, 0x00, 0x01, 0x00];
const section = (id: number, body: number[]) => [id, body.length, ...body];
/** A plain name: the form byte 0, the length and the text. */
const name = (text: string) => [0, text.length, ...new TextEncoder().encode(text)];
/** An import section that describes each import as an instance of type 0. */
const imports = (...names: string[]) => section(10, [names.length, ...names.flatMap((text) => [...name(text), 5, 0])]);

test('importedInterfaces finds the interfaces of the contract among other imports and sections', () => {
  const component = Uint8Array.from([
    ...PREAMBLE,
    ...section(0, [1, 2, 3]),
    ...imports('pie:inferlet/forward@0.1.0', 'wasi:io/streams@0.2.0'),
    // A type with an `eq` bound, a type with a `sub resource` bound, and a core module.
    ...section(10, [3, ...name('t'), 3, 0, 7, ...name('r'), 3, 1, ...name('m'), 0, 0x11, 4]),
    // Two imports: `fused` in form 2, where the version follows the name; and a value with its bound. `slice` drops the form byte.
    ...section(10, [
      2,
      2,
      ...name('pie:inferlet/fused@0').slice(1),
      ...name('0.1').slice(1),
      5,
      0,
      ...name('v'),
      2,
      1,
      0x73,
    ]),
    ...imports('pie:inferlet/kv-files@0.1.0'),
  ]);
  assert.deepEqual(importedInterfaces(component), ['forward', 'fused', 'kv-files']);
});

test('importedInterfaces reads at most 10,000 imports', () => {
  const number = (value: number): number[] => (value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...number(value >> 7)]);
  /** The interfaces found in a component whose import of `forward` follows `count` imports with empty names. */
  const foundAfter = (count: number) => {
    const body = [...number(count), ...Array<number[]>(count).fill([0, 0, 5, 0]).flat()];
    return importedInterfaces(
      Uint8Array.from([...PREAMBLE, 10, ...number(body.length), ...body, ...imports('pie:inferlet/forward@0.1.0')]),
    );
  };
  assert.deepEqual(foundAfter(9_999), ['forward']);
  assert.deepEqual(foundAfter(10_000), []);
});

test('importedInterfaces throws neither for truncated components nor for random bytes', () => {
  const good = [...PREAMBLE, ...imports('pie:inferlet/forward@0.1.0')];
  for (let length = 0; length <= good.length; length++) importedInterfaces(Uint8Array.from(good.slice(0, length)));
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200, size: 'max' }), (bytes) => {
      importedInterfaces(Uint8Array.from([...PREAMBLE, ...bytes]));
    }),
    { seed: 20261120, numRuns: 300 },
  );
});
