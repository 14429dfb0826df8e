import { readFileSync } from 'node:fs';
import type { VariantType, WitFunction, WitInterface, WitWorld } from './model.ts';
import { pascalCase } from './model.ts';
import { HEADER } from './names.ts';
import { callLines, indented, resourceLines } from './rust/calls.ts';
import { comment, identifier } from './rust/names.ts';
import { type Directions, directionsOf, typeLines } from './rust/types.ts';

/** Reads a part of the crate that is the same for every contract. */
const part = (name: string): string => readFileSync(new URL(`rust/${name}`, import.meta.url), 'utf8');

/**
 * The text of `pie.rs`: the contract as the Rust crate `pie`, for wasm32-unknown-unknown, with the standard library as
 * its only dependency. Each interface is a module. When a call returns a text or a list, the platform calls
 * `cabi_realloc` of the inferlet, which allocates memory, and writes the value there. The Rust function of the call
 * then returns a `String` or `Vec` that owns this memory.
 *
 * A Rust inferlet exports the core function `run`, without callbacks: a read blocks until the future has its value.
 */
export function emitRust(world: WitWorld): string {
  for (const fn of world.exports) checkExport(fn);
  const directions = directionsOf(world);
  const modules = world.imports.flatMap((entry) => moduleLines(entry, directions));
  return [HEADER, part('crate.rs'), part('program.rs'), part('json.rs'), ...modules, part('abi.rs')].join('\n');
}

/** The text of `Cargo.toml` for `pie.rs`: projects with Cargo name its folder as a dependency. */
export function emitCargo({ version }: WitWorld): string {
  const head = HEADER.replace('//', '#');
  const target = `[lib]\npath = "pie.rs"\ndoctest = false`;
  return `${head}\n\n[package]\nname = "pie"\nversion = "${version}"\nedition = "2021"\n\n${target}\n`;
}

/** Throws for an export other than `run: func(string) -> result<string, string>`, the only export that the macro `inferlet!` makes. */
function checkExport({ name, params, result }: WitFunction): void {
  const isKnown =
    name === 'run' &&
    params.map(({ type }) => type.kind).join() === 'string' &&
    result?.kind === 'result' &&
    result.ok?.kind === 'string' &&
    result.err?.kind === 'string';
  if (!isKnown)
    throw new TypeError(`inferlet! exports only run, from a text to a text or an error text: extend it for ${name}`);
}

function moduleLines(entry: WitInterface, directions: Directions): string[] {
  const body = [
    ...(entry.types.length + entry.resources.length + entry.functions.length > 0 ? ['use crate::abi;', ''] : []),
    ...entry.types.flatMap((type) => [...typeLines(type, directions), ...messageLines(type)]),
    ...entry.resources.flatMap(({ name, docs, functions }) => resourceLines(entry, name, docs, functions)),
    ...entry.functions.flatMap((fn) => callLines(entry, fn)),
  ];
  if (body.at(-1) === '') body.pop();
  return [...comment(entry.docs), `pub mod ${identifier(entry.name)} {`, ...indented(body), '}', ''];
}

/** The method `message` of a variant whose cases all carry a text, such as the platform's error. */
function messageLines(type: WitInterface['types'][number]): string[] {
  if (type.kind !== 'variant' || !type.cases.every((entry) => entry.type?.kind === 'string')) return [];
  return [
    `impl ${pascalCase(type.name)} {`,
    '    /// The text, whatever the case.',
    '    pub fn message(&self) -> &str {',
    '        match self {',
    `            ${casePatterns(type)} => message,`,
    '        }',
    '    }',
    '}',
    '',
  ];
}

const casePatterns = (type: VariantType): string =>
  type.cases.map(({ name }) => `Self::${pascalCase(name)}(message)`).join(' | ');
