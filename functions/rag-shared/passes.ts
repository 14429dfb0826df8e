import { PASSES, type Pass } from '@pie/inferlet/workflow';

/** The library's passes with these names, in the library's order; all of them without names. */
export const passesNamed = (names: readonly string[] | undefined): readonly Pass[] =>
  names ? PASSES.filter(({ name }) => names.includes(name)) : PASSES;
