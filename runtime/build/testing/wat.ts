import { componentEmbed, componentNew, parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import { contractText } from '../component/contract.ts';

/** Makes a core module from WebAssembly text. */
export const wat = (text: string): Promise<Uint8Array> => parse(text);

/** Makes a component from a core module; by default, for the inferlet world of the contract. */
export async function component(core: Uint8Array, wit?: string, world = 'inferlet'): Promise<Uint8Array> {
  const source = wit ?? (await contractText());
  return componentNew(await componentEmbed({ binary: core, witSource: source, world }), []);
}

/**
 * An inferlet in WebAssembly text: memory and an allocator around the body of `run`. The body reads the input from $input
 * and $length, and writes the number that it returns to $result; `fields` are further declarations.
 */
export function guest(body: string, fields = '', memory = '(memory (export "memory") 1)'): Promise<Uint8Array> {
  return wat(`(module
    ${fields}
    ${memory}
    (global $heap (mut i32) (i32.const 4096))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
      (global.set $heap (i32.add (local.get $at) (local.get 3)))
      (local.get $at))
    (func (export "run") (param $input i32) (param $length i32) (result i32)
      (local $result i32) (local $i i32) (local $at i32)
      ${body}
      ;; Write the number as decimal digits, backwards from address 2048.
      (local.set $at (i32.const 2048))
      (loop $digit
        (local.set $at (i32.sub (local.get $at) (i32.const 1)))
        (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $result) (i32.const 10))))
        (local.set $result (i32.div_u (local.get $result) (i32.const 10)))
        (br_if $digit (local.get $result)))
      (i32.store (i32.const 0) (i32.const 0))
      (i32.store (i32.const 4) (local.get $at))
      (i32.store (i32.const 8) (i32.sub (i32.const 2048) (local.get $at)))
      (i32.const 0)))`);
}
