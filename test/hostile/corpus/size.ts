import { leb } from '#runtime/build/wasm/binary.ts';
import { type Attack, ended, refused, UNBUILT } from '../attack.ts';
import { componentText, DONE, type GuestText } from '../guest.ts';

const BUILT_OR_REFUSED = [...UNBUILT, ...ended('result')];

const repeat = (count: number, text: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => text(index)).join('\n');

const guest = (name: string, text: () => GuestText, ends: Attack['ends'] = BUILT_OR_REFUSED): Attack => ({
  name: `size-${name}`,
  kind: 'size',
  source: () => ({ guest: text() }),
  ends,
});

const component = (name: string, text: () => string | Uint8Array, ends: Attack['ends'] = BUILT_OR_REFUSED): Attack => ({
  name: `size-${name}`,
  kind: 'size',
  source: () => ({ component: text() }),
  ends,
});

const COMPONENT_SECTION = 4;
const WASM = [0, 0x61, 0x73, 0x6d];
const COMPONENT_HEADER = Uint8Array.of(...WASM, 0x0d, 0, 1, 0);

/** A component's header followed by zeros, `bytes` bytes in all. */
function zeros(bytes: number): Uint8Array {
  const all = new Uint8Array(bytes);
  all.set(COMPONENT_HEADER);
  return all;
}

/** Components nested in each other, `depth` deep. The text format does not nest that deep. */
function nested(depth: number): Uint8Array {
  const headers: number[][] = [];
  let innerBytes = COMPONENT_HEADER.length;
  while (headers.length < depth) {
    const header = [...COMPONENT_HEADER, COMPONENT_SECTION, ...leb(innerBytes)];
    headers.push(header);
    innerBytes += header.length;
  }
  return Uint8Array.from([...headers.reverse().flat(), ...COMPONENT_HEADER]);
}

/** Types that each contain the one before twice: written out in full, a type doubles in length with each level. */
const doubling = (levels: number): string =>
  componentText({
    before: `(type $t0 (tuple string string)) ${repeat(levels, (i) => `(type $t${i + 1} (tuple $t${i} $t${i}))`)}
      (import "pie:inferlet/runtime@0.1.0" (instance (export "version" (func (param "x" $t${levels})))))`,
  });

export const size: readonly Attack[] = [
  guest('function-of-400000-instructions', () => ({
    fields: `(func ${'(drop (i32.const 1))'.repeat(200_000)})`,
    run: DONE,
  })),
  guest(
    'function-of-50000-locals',
    () => ({ fields: `(func (local ${'i64 '.repeat(49_990)}))`, run: DONE }),
    BUILT_OR_REFUSED,
  ),
  guest(
    'recursion-of-50000-locals',
    () => ({
      fields: `(func $f (local ${'i64 '.repeat(49_990)}) (call $f) (call $f))`,
      run: `(call $f) ${DONE}`,
    }),
    [...UNBUILT, ...ended('trap')],
  ),
  guest('100000-functions', () => ({ fields: repeat(100_000, () => '(func)'), run: DONE })),
  guest('50000-exports', () => ({ fields: repeat(50_000, (i) => `(func (export "f${i}"))`), run: DONE }), [
    ...BUILT_OR_REFUSED,
    ...refused('wrong-world'),
  ]),
  guest('100000-globals', () => ({ fields: repeat(100_000, () => '(global i64 (i64.const 1))'), run: DONE })),
  guest('50000-data-segments', () => ({ fields: repeat(50_000, () => '(data (i32.const 2048) "x")'), run: DONE })),
  guest(
    '5000-nested-blocks',
    () => ({ fields: `(func ${'(block '.repeat(5000)}${')'.repeat(5000)})`, run: DONE }),
    BUILT_OR_REFUSED,
  ),
  guest('20000-nested-loops', () => ({
    fields: `(func ${'loop '.repeat(20_000)}${'end '.repeat(20_000)})`,
    run: DONE,
  })),
  guest('3000-nested-expressions', () => ({
    fields: `(func (result i32) ${'(i32.add (i32.const 1) '.repeat(3000)}(i32.const 1)${')'.repeat(3000)})`,
    run: DONE,
  })),
  guest('branch-table-of-60000', () => ({
    fields: `(func (param i32) (block $b (br_table ${'$b '.repeat(60_000)} (local.get 0))))`,
    run: DONE,
  })),
  guest('many-branch-tables', () => ({
    fields: `(func (param i32) ${repeat(200, () => `(block $b (br_table ${'$b '.repeat(2000)} (local.get 0)))`)})`,
    run: DONE,
  })),
  guest('1000-parameters', () => ({ fields: `(func (param ${'i64 '.repeat(1000)}))`, run: DONE })),
  guest(
    'functions-that-all-call-all',
    () => ({
      fields: repeat(400, (i) => `(func $c${i} ${repeat(400, (j) => `(call $c${j})`)})`),
      run: `(call $c0) ${DONE}`,
    }),
    [...UNBUILT, ...ended('trap', 'cpu-limit', 'deadline-exceeded')],
  ),
  guest('8-mib-of-data', () => ({
    memory: '200',
    fields: `(data (i32.const 65536) "${'x'.repeat(8 << 20)}")`,
    run: DONE,
  })),
  component('nested-1000-components', () => nested(1000), [...UNBUILT, ...refused('wrong-world')]),
  component('nested-50-components', () => nested(50), [...UNBUILT, ...refused('wrong-world')]),
  component('doubling-types', () => doubling(24), [...UNBUILT, ...refused('wrong-world')]),
  component('1000-core-modules', () => componentText({ before: repeat(1000, () => '(core module)') }), [
    ...UNBUILT,
    ...ended('result'),
  ]),
  component(
    '120-core-instances',
    () => componentText({ before: repeat(120, (i) => `(core module $x${i}) (core instance (instantiate $x${i}))`) }),
    [...UNBUILT, ...ended('result')],
  ),
  component(
    '5000-instances-of-one-module',
    () =>
      componentText({
        before: `(core module $m (memory 1)) ${repeat(5000, () => '(core instance (instantiate $m))')}`,
      }),
    [...UNBUILT, ...ended('result')],
  ),
  component(
    '100-memories-by-instances',
    () =>
      componentText({
        before: `(core module $m (memory 100) (func $f (drop (memory.grow (i32.const 1))))) ${repeat(100, () => '(core instance (instantiate $m))')}`,
      }),
    [...UNBUILT, ...ended('result')],
  ),
  component('zeros', () => zeros(1 << 20), [...UNBUILT, ...refused('wrong-world')]),
  component('64-mib', () => zeros((64 << 20) + 1), refused('component-too-large', 'body-too-large')),
  component('not-wasm', () => new TextEncoder().encode('#!/bin/sh\nreboot\n'), refused('not-wasm')),
  component('core-module', () => Uint8Array.of(...WASM, 1, 0, 0, 0), refused('core-module')),
  component('header-only', () => COMPONENT_HEADER, [...UNBUILT, ...refused('wrong-world')]),
];
