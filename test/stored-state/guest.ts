import { watComponent } from '#runtime/testing/wat.ts';

const STORE = 'pie:inferlet/store@0.1.0';
/** An input that the guest stores: it begins with `k`. */
export const KEEP = 'keep: a value of acme';
/** An input that the guest does not store. */
export const READ = 'read';

const code = (character: string): string => `(i32.const ${character.charCodeAt(0)})`;

/**
 * A component of few bytes. It sends its input (JSON text) as a message and, when the input begins with `"k`, stores it under the key `kept`.
 * It returns the JSON list of its secret `TOKEN`, its variable `EDITION` and the stored value. Memory: names below 256, answers of host calls from
 * 256 on, the result record at 512, the text of the result from 4096 on.
 */
export function keeper(): Promise<Uint8Array> {
  return watComponent(`(module
    (import "pie:inferlet/environment@0.1.0" "get-variable" (func $variable (param i32 i32 i32)))
    (import "pie:inferlet/session@0.1.0" "send" (func $send (param i32 i32 i32 i32)))
    (import "${STORE}" "set" (func $set (param i32 i32 i32 i32 i32 i32) (result i32)))
    (import "${STORE}" "[future-read-0]set" (func $stored (param i32 i32) (result i32)))
    (import "${STORE}" "[future-drop-readable-0]set" (func $drop_set (param i32)))
    (import "${STORE}" "get" (func $get (param i32 i32) (result i32)))
    (import "${STORE}" "[future-read-0]get" (func $got (param i32 i32) (result i32)))
    (import "${STORE}" "[future-drop-readable-0]get" (func $drop_get (param i32)))
    (memory (export "memory") 2)
    (data (i32.const 16) "TOKEN") (data (i32.const 32) "EDITION") (data (i32.const 48) "kept")
    (global $top (mut i32) (i32.const 65536))
    (global $end (mut i32) (i32.const 4096))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local i32)
      (local.set 4 (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
      (global.set $top (i32.add (local.get 4) (local.get 3)))
      (local.get 4))
    (func $byte (param i32)
      (i32.store8 (global.get $end) (local.get 0))
      (global.set $end (i32.add (global.get $end) (i32.const 1))))
    (func $text (param i32 i32)
      (memory.copy (global.get $end) (local.get 0) (local.get 1))
      (global.set $end (i32.add (global.get $end) (local.get 1))))
    (func $add_variable (param i32 i32)
      (call $variable (local.get 0) (local.get 1) (i32.const 256))
      (if (i32.eqz (i32.load8_u (i32.const 256))) (then unreachable))
      (call $byte ${code('"')})
      (call $text (i32.load (i32.const 260)) (i32.load (i32.const 264)))
      (call $byte ${code('"')})
      (call $byte ${code(',')}))
    (func (export "run") (param i32 i32) (result i32) (local i32)
      (global.set $end (i32.const 4096))
      (call $send (i32.const 0) (local.get 0) (local.get 1) (i32.const 320))
      (if (i32.load8_u (i32.const 320)) (then unreachable))
      (if (i32.eq (i32.load8_u offset=1 (local.get 0)) ${code('k')}) (then
        (local.set 2 (call $set (i32.const 48) (i32.const 4) (local.get 0) (local.get 1) (i32.const 0) (i32.const 0)))
        (if (call $stored (local.get 2) (i32.const 384)) (then unreachable))
        (call $drop_set (local.get 2))
        (if (i32.load8_u (i32.const 384)) (then unreachable))))
      (call $byte ${code('[')})
      (call $add_variable (i32.const 16) (i32.const 5))
      (call $add_variable (i32.const 32) (i32.const 7))
      (local.set 2 (call $get (i32.const 48) (i32.const 4)))
      (if (call $got (local.get 2) (i32.const 448)) (then unreachable))
      (call $drop_get (local.get 2))
      (if (i32.load8_u (i32.const 448)) (then unreachable))
      (if (i32.eqz (i32.load8_u (i32.const 456))) (then unreachable))
      (call $text (i32.load (i32.const 464)) (i32.load (i32.const 468)))
      (call $byte ${code(']')})
      (i32.store8 (i32.const 512) (i32.const 0))
      (i32.store (i32.const 516) (i32.const 4096))
      (i32.store (i32.const 520) (i32.sub (global.get $end) (i32.const 4096)))
      (i32.const 512)))`);
}
