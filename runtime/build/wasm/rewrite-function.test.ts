import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wat } from '../testing/wat.ts';
import { meter } from './meter.ts';

const FUEL = 1_000_000;
const CALLS = 40;

/** Fuel that the calls of an empty function with this many locals take. */
async function fuelOfCalls(locals: number): Promise<number> {
  const called = `(func $called (local ${'i64 '.repeat(locals)}))`;
  const main = `(func (export "main") ${'(call $called)'.repeat(CALLS)})`;
  const { bytes } = meter(await wat(`(module ${called} ${main})`));
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes.slice()));
  const fuel = exports.pie_fuel as WebAssembly.Global;
  fuel.value = FUEL;
  (exports.main as () => void)();
  return FUEL - Number(fuel.value);
}

test('a call of a function with many locals pays for setting them to zero, like a fill of as many bytes', async () => {
  // The calling function pays 1 at its entry. A call pays 1 at the entry of the called function, and 1 for each 64 bytes of locals.
  assert.equal(await fuelOfCalls(8), 1);
  assert.equal(await fuelOfCalls(40_000), 1 + CALLS * (1 + (40_000 * 8) / 64));
});
