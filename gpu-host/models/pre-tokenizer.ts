import { z } from 'zod';

const digitsSchema = z.looseObject({ type: z.literal('Digits'), individual_digits: z.boolean().default(false) });
const unprefixedSchema = z.looseObject({ type: z.literal('Metaspace'), add_prefix_space: z.literal(false) });
const splitsSchema = z.looseObject({ type: z.literal('Sequence'), pretokenizers: z.array(z.unknown()) });

/**
 * Rewrites a pre-tokenizer so that the JavaScript tokenizer library splits text as the Rust library does. Two types differ: the JavaScript
 * `Digits` splits at 0 to 9 only, the Rust one at the numbers of all scripts; and the JavaScript `Metaspace` ignores `add_prefix_space`.
 */
export function asInRust(preTokenizer: unknown): unknown {
  const sequence = splitsSchema.safeParse(preTokenizer).data;
  if (sequence) return { ...sequence, pretokenizers: sequence.pretokenizers.map(asInRust) };
  const unprefixed = unprefixedSchema.safeParse(preTokenizer).data;
  if (unprefixed) return { ...unprefixed, prepend_scheme: 'never' };
  const digits = digitsSchema.safeParse(preTokenizer).data;
  if (!digits) return preTokenizer;
  const Regex = digits.individual_digits ? '\\p{N}' : '\\p{N}+';
  return { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false };
}
