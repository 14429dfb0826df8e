import { type Attack, ended, refused, UNBUILT } from '../attack.ts';
import { componentText } from '../guest.ts';

/** Names with a meaning in JavaScript: a host that keeps names in a plain object could confuse them with the object's own members. */
const WORDS = [
  '__proto__',
  'constructor',
  'prototype',
  'then',
  'toString',
  'valueOf',
  'hasOwnProperty',
  '__defineGetter__',
  '__lookupSetter__',
];

/** The platform refuses such a name or treats it like any other. */
const HARMLESS = [...UNBUILT, ...ended('result')];

/** Links a function of one core module into another under the attacker's module and field names. */
const linked = (module: string, field: string): string =>
  componentText({
    before: `(core module $lib (func (export "${field}") (result i32) (i32.const 7)))
      (core instance $lib (instantiate $lib))`,
    args: `(with "${module}" (instance $lib))`,
    main: `(import "${module}" "${field}" (func $linked (result i32)))`,
    run: '(drop (call $linked))',
  });

/** Exports a memory, a table and a global under the same name, each from an instance of its own. The main module imports the table and the global. */
const everyKind = (word: string): string =>
  componentText({
    before: ['(memory (export "@") 1)', '(table (export "@") 1 funcref)', '(global (export "@") i32 (i32.const 1))']
      .map((field, i) => `(core module $m${i} ${field.replace('@', word)}) (core instance $m${i} (instantiate $m${i}))`)
      .join('\n'),
    args: '(with "b" (instance $m1)) (with "c" (instance $m2))',
    main: `(import "b" "${word}" (table 1 funcref)) (import "c" "${word}" (global i32))`,
  });

const attack = (name: string, component: string, ends: Attack['ends'] = HARMLESS): Attack => ({
  name: `names-${name.replaceAll('_', '-').toLowerCase()}`,
  kind: 'names',
  source: () => ({ component }),
  ends,
});

const importing = (name: string, item: string): string => `(component (import "${name}" ${item}))`;

export const names: readonly Attack[] = [
  ...WORDS.map((word) => attack(`module-${word}`, linked(word, 'then'))),
  ...WORDS.map((word) => attack(`field-${word}`, linked('lib', word))),
  ...WORDS.slice(0, 4).map((word) => attack(`both-${word}`, linked(word, word))),
  ...WORDS.slice(0, 4).map((word) => attack(`kinds-${word}`, everyKind(word))),
  attack('empty', linked('', '')),
  attack('long', linked('m'.repeat(90_000), 'f'.repeat(90_000))),
  attack('quote', linked("';process.exit(9);'", 'x'), UNBUILT),
  attack('backslash', linked('\\\\', '\\n`process.exit(9)`'), UNBUILT),
  attack('line-separator', linked('\u2028', '\u2029'), UNBUILT),
  attack('ours', linked('pie:inferlet/runtime@0.1.0', 'now'), [...HARMLESS, ...ended('trap')]),
  attack('root', linked('$root', '[waitable-set-new]'), [...HARMLESS, ...ended('trap')]),
  attack('actual', linked('actual', '0'), [...HARMLESS, ...ended('trap')]),
  attack('component-constructor', importing('constructor', '(func)'), refused('wrong-world')),
  attack('component-then', importing('then', '(instance)'), refused('wrong-world')),
  attack(
    'interface-member-constructor',
    importing('pie:inferlet/runtime@0.1.0', '(instance (export "constructor" (func)))'),
    refused('wrong-world'),
  ),
  attack(
    'interface-member-value-of',
    importing('pie:inferlet/queue@0.1.0', '(instance (export "value-of" (func)) (export "to-string" (func)))'),
    refused('wrong-world'),
  ),
];
