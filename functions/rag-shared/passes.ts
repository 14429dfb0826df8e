import { PASSES, type Pass } from '@pie/inferlet/workflow';
import { parallelComponents } from './parallel-components.ts';

/** The passes with these names, {@link parallelComponents} first, then in the library's order. Without names, all passes of the library. */
export const passesNamed = (names: readonly string[] | undefined): readonly Pass[] =>
  names ? [parallelComponents, ...PASSES].filter(({ name }) => names.includes(name)) : PASSES;
