import { parse } from '@bytecodealliance/jco-transpile/wasm-tools';
import { wrapModule } from '#runtime/build/native/wrap.ts';
import type { Source } from './attack.ts';
import { hostImports } from './host-imports.ts';

/** Parts of a guest in text form. Naming a host function imports it (`host-imports.ts`). */
export interface GuestText {
  /**
   * Body of `run`: $at and $length are the input, $i and $j are scratch locals. It must leave a callback code on the stack, as `DONE` does.
   * Empty if `entry` is set.
   */
  readonly run: string;
  /** Body of the callback (parameters $event, $handle, $value). Returns "42" by default. */
  readonly callback?: string;
  /** Body of `cabi_realloc` (parameters $old $oldSize $align $size). Bumps a pointer by default. */
  readonly realloc?: string;
  /** Functions, globals, tables, tags and data. */
  readonly fields?: string;
  /** Imports besides those of the host; the module lists them first. */
  readonly imports?: string;
  /** Body of the start function. */
  readonly start?: string;
  /** Limits of the memory: `minimum maximum`; two pages by default. */
  readonly memory?: string;
  /** Functions that replace the exports of `run` and its callback, for another form of entry. They cannot use `DONE`: `$return` is not imported. */
  readonly entry?: string;
}

/** Addresses of the guests' data. */
export const AT = {
  /** "42", and two bytes that are not UTF-8 behind it. */
  answer: 16,
  /** The name of the canary's model. */
  model: 32,
  /** "topic". */
  name: 64,
  /** The name of a model with a chat template. */
  chatModel: 96,
  /** Host functions may write their results here. */
  scratch: 256,
  /** `cabi_realloc` allocates from here on. */
  heap: 65_536,
} as const;
const MODEL = 'stories15m';
const CHAT_MODEL = 'minimind2-small';

/** Names as core values: address and length. */
export const MODEL_NAME = `(i32.const ${AT.model}) (i32.const ${MODEL.length})`;
export const CHAT_MODEL_NAME = `(i32.const ${AT.chatModel}) (i32.const ${CHAT_MODEL.length})`;
export const TOPIC = `(i32.const ${AT.name}) (i32.const 5)`;
/** Address for a result, as a core value. */
export const SCRATCH = `(i32.const ${AT.scratch})`;
/** Returns "42". */
export const RETURN = `(call $return (i32.const 0) (i32.const ${AT.answer}) (i32.const 2))`;
/** Returns "42" and leaves the callback code 0, which ends the task. */
export const DONE = `${RETURN} (i32.const 0)`;
/** Repeats `body` without end. */
export const forever = (body = ''): string => `(loop $forever ${body} (br $forever)) (unreachable)`;
/** Runs `body` for each $i from 0 to `count - 1`. */
export const times = (count: number, body: string): string =>
  `(local.set $i (i32.const 0)) (loop $times ${body}
    (br_if $times (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const ${count}))))`;
/** Catches every exception of `body`, which must leave nothing on the stack. */
export const swallow = (body: string): string => `(block $caught (try_table (catch_all $caught) ${body}))`;

const BUMP = '(call $bump (local.get $align) (local.get $size))';

/** The text of a core module that exports `run`. */
function guestText(guest: GuestText): string {
  const body = [guest.run, guest.callback, guest.realloc, guest.fields, guest.start, guest.entry].join('\n');
  return `(module
  ${guest.imports ?? ''}
  ${hostImports(body)}
  ${guest.entry === undefined ? '(import "[export]$root" "[task-return]run" (func $return (param i32 i32 i32)))' : ''}
  (memory $memory (export "memory") ${guest.memory ?? '2'})
  (data (i32.const ${AT.answer}) "42\\ff\\fe")
  (data (i32.const ${AT.model}) "${MODEL}")
  (data (i32.const ${AT.name}) "topic")
  (data (i32.const ${AT.chatModel}) "${CHAT_MODEL}")
  (global $top (mut i32) (i32.const ${AT.heap}))
  (func $bump (param $align i32) (param $size i32) (result i32) (local $at i32) (local $more i32)
    (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (local.set $more (i32.sub (i32.shr_u (i32.add (global.get $top) (i32.const 65535)) (i32.const 16)) (memory.size)))
    (if (i32.gt_s (local.get $more) (i32.const 0)) (then (drop (memory.grow (local.get $more)))))
    (local.get $at))
  (func $realloc (export "cabi_realloc") (param $old i32) (param $oldSize i32) (param $align i32) (param $size i32) (result i32)
    (local $i i32) ${guest.realloc ?? BUMP})
  ${guest.fields ?? ''}
  ${guest.start === undefined ? '' : `(func $start (local $i i32) (local $j i32) ${guest.start}) (start $start)`}
  ${guest.entry ?? entryText(guest)})`;
}

const entryText = ({ run, callback }: GuestText): string => `
  (func $run (export "[async-lift]run") (param $at i32) (param $length i32) (result i32) (local $i i32) (local $j i32) ${run})
  (func $callback (export "[callback][async-lift]run") (param $event i32) (param $handle i32) (param $value i32) (result i32)
    (local $i i32) ${callback ?? DONE})`;

/** The bytes that an attack deploys. @throws Error of the tools for text that is not WebAssembly */
export async function attackBytes(source: Source): Promise<Uint8Array> {
  if ('guest' in source) return wrapModule(await parse(guestText(source.guest)));
  if ('core' in source) return wrapModule(await bytesOf(source.core));
  return bytesOf(source.component);
}

const bytesOf = async (code: string | Uint8Array): Promise<Uint8Array> =>
  typeof code === 'string' ? parse(code) : code;

/** Parts of a component in text form with hand-written linking. */
export interface ComponentText {
  /** Core modules and instances before the main one. */
  readonly before?: string;
  /** `(with "name" (instance $x))` of the main module. */
  readonly args?: string;
  /** Imports and functions of the main module. */
  readonly main?: string;
  /** Body of `run`, with the input in $at and $length. It must leave nothing on the stack. */
  readonly run?: string;
}

/** A component whose core modules are linked under names of the attacker's choice: wit-component would choose others. */
export function componentText({ before = '', args = '', main = '', run = '' }: ComponentText): string {
  return `(component
  ${before}
  (core module $main
    ${main}
    (memory (export "memory") 2)
    (data (i32.const ${AT.answer}) "42")
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "run") (param $at i32) (param $length i32) (result i32)
      ${run}
      (i32.store (i32.const 256) (i32.const 0))
      (i32.store (i32.const 260) (i32.const ${AT.answer}))
      (i32.store (i32.const 264) (i32.const 2))
      (i32.const 256)))
  (core instance $main (instantiate $main ${args}))
  (alias core export $main "memory" (core memory $memory))
  (alias core export $main "cabi_realloc" (core func $realloc))
  (alias core export $main "run" (core func $core-run))
  (type $outcome (result string (error string)))
  (type $run (func async (param "input" string) (result $outcome)))
  (func $lifted (type $run) (canon lift (core func $core-run) (memory $memory) (realloc $realloc) string-encoding=utf8))
  (export "run" (func $lifted)))`;
}
