import { camelCase, type NamedType, pascalCase } from './model.ts';

/** First line of the generated sources. */
export const HEADER =
  '// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.';

/** A declared type's constant, unique in the package: its interface and its name (`fusedRunChunk`, `typesError`). */
export const typeName = (type: NamedType): string => camelCase(type.interface) + pascalCase(type.name);

/** Names that a generated type must not hide. */
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

/** The lines of documentation, without what would end the comment around them. */
export const docLines = (docs: string): string[] => docs.replaceAll('*/', '* /').split('\n');

/** A documentation comment as lines; no lines without docs. */
export function documentation(docs: string | undefined, indent = ''): string[] {
  if (!docs) return [];
  const lines = docLines(docs);
  if (lines.length === 1) return [`${indent}/** ${lines[0]} */`];
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`), `${indent} */`];
}
