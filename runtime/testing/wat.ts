import { parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import { wrapModule } from '../build/native/wrap.ts';

/** Makes a component of the inferlet world from a core module in text form: guests that no toolchain would write. */
export async function watComponent(wat: string): Promise<Uint8Array> {
  return wrapModule(await parse(wat));
}

/** Parts of a guest in text form. */
export interface WatGuest {
  /**
   * Imports besides `$return` (`[task-return]run`), each `[module, name, signature]`. The guest calls an import by `$` and its
   * name, with `_` for each character other than a lowercase letter or a digit.
   */
  readonly imports?: readonly (readonly [module: string, name: string, signature: string])[];
  /** Functions, globals and data. */
  readonly extra?: string;
  /** Body of `run` (parameters 0 and 1: the input); it returns a callback code. */
  readonly run: string;
  /** Locals of `run` besides its parameters. */
  readonly locals?: string;
  /** Body of the callback (parameters: event, handle, value). By default it returns the text "42". */
  readonly callback?: string;
  /** Replaces the allocator. */
  readonly realloc?: string;
  readonly pages?: number;
}

/** Returns `ok` (0) with the text "42", which lies at address 16. */
export const RETURN_42 = '(call $return (i32.const 0) (i32.const 16) (i32.const 2))';

const BUMP_ALLOCATOR = `(global $top (mut i32) (i32.const 4096))
  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local i32)
    (local.set 4 (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
    (global.set $top (i32.add (local.get 4) (local.get 3)))
    (local.get 4))`;

/**
 * Text of a guest in the callback form. Memory begins with zeros; "42" is at 16, followed by two bytes that are not
 * UTF-8.
 */
export function callbackGuest(guest: WatGuest): string {
  const imports = (guest.imports ?? []).map(
    ([module, name, signature]) =>
      `(import "${module}" "${name}" (func $${name.replace(/[^a-z0-9]/g, '_')} ${signature}))`,
  );
  return `(module
  ${imports.join('\n  ')}
  (import "[export]$root" "[task-return]run" (func $return (param i32 i32 i32)))
  (memory (export "memory") ${guest.pages ?? 1})
  (data (i32.const 16) "42\\ff\\fe")
  ${guest.realloc ?? BUMP_ALLOCATOR}
  ${guest.extra ?? ''}
  (func (export "[async-lift]run") (param i32 i32) (result i32) ${guest.locals ?? ''} ${guest.run})
  (func (export "[callback][async-lift]run") (param i32 i32 i32) (result i32) ${guest.callback ?? `${RETURN_42} (i32.const 0)`}))`;
}
