import { camelCase, type NamedType, pascalCase } from './model.ts';

/** First lines of every generated file. */
export const HEADER =
  '// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.';

/** A declared type's constant, unique in the package: its interface and its name (`fusedRunChunk`, `typesError`). */
export const typeName = (type: NamedType): string => camelCase(type.interface) + pascalCase(type.name);
