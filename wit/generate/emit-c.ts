import { readFileSync } from 'node:fs';
import { callLines, dropLines } from './c/calls.ts';
import { functionName, identifier, resourceName, typeName } from './c/names.ts';
import { comment, Types } from './c/types.ts';
import type { WitFunction, WitType, WitWorld } from './model.ts';
import { HEADER } from './names.ts';

/** Reads a part of the header that is the same for every contract. */
const part = (name: string): string => readFileSync(new URL(`c/${name}`, import.meta.url), 'utf8');

/**
 * The text of `pie.h`: the contract in C11, for clang with `--target=wasm32`, with or without wasi-libc. Each source file of an inferlet includes
 * this one file. The C structures have the layout of the contract's values in memory. The platform therefore writes a result where the C code
 * reads it, and a call passes its arguments to the import without conversion.
 *
 * An inferlet in C exports `run` as a synchronous core function. The platform could resume an asynchronous `run` by a callback, but a synchronous one
 * has none, so each call that waits blocks the inferlet. Such a call takes 4 to 5 µs more than its wait.
 */
export function emitC(world: WitWorld): string {
  const types = new Types();
  const lines = [HEADER, '', part('prelude.h')];
  for (const entry of world.imports) {
    const functions = [...entry.resources.flatMap((resource) => resource.functions), ...entry.functions];
    lines.push(
      `/* ---- ${entry.name} ${'-'.repeat(Math.max(3, 110 - entry.name.length))} */`,
      ...comment(entry.docs),
      '',
    );
    const declared = [
      ...entry.types,
      ...functions.flatMap((fn) => [...fn.params.map(({ type }) => type), finalValue(fn)]),
      ...entry.resources.map(({ name }): WitType => ({ kind: 'own', interface: entry.name, resource: name })),
    ].flatMap((type) => types.declare(type));
    lines.push(...declared, '');
    for (const fn of functions) lines.push(...callLines(entry, fn));
    for (const { name } of entry.resources) lines.push(...dropLines(entry, name, resourceName(entry.name, name)));
  }
  for (const fn of world.exports) {
    lines.push(...(fn.result ? types.declare(fn.result) : []), ...comment(fn.docs), `${prototype(fn)};`, '');
  }
  lines.push(part('main.h'));
  for (const fn of world.exports) lines.push(...exportLines(fn));
  // Close `#ifdef PIE_MAIN`, which opens `main.h`, and `#ifndef PIE_H`, the header's guard, which opens `prelude.h`.
  lines.push('#endif /* PIE_MAIN */', '#endif /* PIE_H */', '');
  return lines.join('\n');
}

/** A function's final return type: for a future, the type of its value. */
const finalValue = (fn: WitFunction): WitType | null => (fn.result?.kind === 'future' ? fn.result.value : fn.result);

function prototype(fn: WitFunction): string {
  const params = fn.params.map(({ name, type }) => `${typeName(type)} ${identifier(name)}`);
  return `${fn.result ? typeName(fn.result) : 'void'} ${functionName(null, fn)}(${params.join(', ') || 'void'})`;
}

/**
 * The core export of a function that takes only texts and returns a `result`, such as the contract's `run`.
 * @throws TypeError for any other function
 */
function exportLines(fn: WitFunction): string[] {
  const takesOnlyTexts = fn.params.every(({ type }) => type.kind === 'string');
  if (!takesOnlyTexts || fn.result?.kind !== 'result') throw new TypeError(`no C export of ${fn.name} is known`);
  const params = fn.params.map(({ name }) => identifier(name));
  const name = functionName(null, fn);
  // `result` is static because the platform reads it after the return.
  return [
    '',
    `PIE_EXPORT("${fn.coreName}") void *${name}_export(${params.map((param) => `const char *${param}, uint32_t ${param}_length`).join(', ')}) {`,
    `  static ${typeName(fn.result)} result;`,
    `  result = ${name}(${params.map((param) => `(pie_string){${param}, ${param}_length}`).join(', ')});`,
    '  return &result;',
    '}',
    '',
  ];
}
