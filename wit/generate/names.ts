import { camelCase, type NamedType, pascalCase, type WitType } from './model.ts';

/** First line of the generated sources. */
export const HEADER =
  '// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.';

/**
 * First part of the name of a declared type's constant in `generated/world.ts`: `fusedRunChunk` of `fusedRunChunkType`. It begins with the
 * type's interface, because two interfaces may declare types of the same name.
 */
export const typeName = (type: NamedType): string => camelCase(type.interface) + pascalCase(type.name);

/** Says if the type is `types.error`, with which nearly all calls fail. */
export const isSharedError = (type: WitType | null): boolean =>
  type !== null && 'name' in type && type.interface === 'types' && type.name === 'error';

/** Names that no type in `generated/host.ts` may have: globals of JavaScript, and `Host`, which that file declares itself. */
export const reserved: ReadonlySet<string> = new Set([
  'Error',
  'Promise',
  'Symbol',
  'Map',
  'Set',
  'Date',
  'Object',
  'Host',
]);

/** The lines of a documentation text. A space splits each comment end mark in the text, because the mark would end the generated comment. */
export const docLines = (docs: string): string[] => docs.replaceAll('*/', '* /').split('\n');

/** The lines of a documentation comment around a text; none for a missing or empty text. */
export function documentation(docs: string | undefined, indent = ''): string[] {
  if (!docs) return [];
  const lines = docLines(docs);
  if (lines.length === 1) return [`${indent}/** ${lines[0]} */`];
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`), `${indent} */`];
}
