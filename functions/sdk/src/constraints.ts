import type { Compiled, Source } from 'pie:inferlet/grammar@0.1.0';
import { constrainedDecoder } from './constrained-decoder.ts';
import type { Constraint, ConstraintOptions, Decoder } from './decoders.ts';
import { InferletError } from './errors.ts';
import { grammar } from './raw.ts';
import type { Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';

/**
 * Constrains the text to JSON that fits a schema.
 *
 * @example
 * const pet = jsonSchema({ type: 'object', properties: { name: { type: 'string' } }, required: ['name'] });
 * const { text } = await ctx.generate({ constraint: pet, maxTokens: 64 }).collect();
 */
export const jsonSchema = <T = unknown>(schema: object | boolean | string): Constraint<T> =>
  new GrammarConstraint(
    { tag: 'json-schema', val: typeof schema === 'string' ? schema : JSON.stringify(schema) },
    (text) => JSON.parse(text) as T,
  );

/** Constrains the text to match a regular expression in full. Flags are not supported. */
export function regex(pattern: string | RegExp): Constraint<string> {
  if (pattern instanceof RegExp && pattern.flags !== '') {
    throw new InferletError(
      'invalid-argument',
      `The flags "${pattern.flags}" of a regular expression have no place here.`,
    );
  }
  return new GrammarConstraint({ tag: 'regex', val: typeof pattern === 'string' ? pattern : pattern.source }, itself);
}

/** Constrains the text to a grammar in EBNF (llama.cpp's GBNF) that starts at `root`. */
export const ebnf = (text: string): Constraint<string> => new GrammarConstraint({ tag: 'ebnf', val: text }, itself);

/** Constrains the text to any JSON. */
export const json = (): Constraint => new GrammarConstraint({ tag: 'json' }, (text) => JSON.parse(text) as unknown);

const itself = (text: string): string => text;

/** Compiles the grammar at the first generation on a model and reuses it. Each generation starts at the grammar's beginning. */
class GrammarConstraint<T> implements Constraint<T> {
  readonly parse: (text: string) => T;
  readonly #source: Source;
  readonly #compiled = new Map<string, Compiled>();

  constructor(source: Source, parse: (text: string) => T) {
    this.#source = source;
    this.parse = parse;
  }

  decoder(sequence: Sequence, sampler: Sampler, seed: number, options: ConstraintOptions): Decoder {
    const { name, traits } = sequence.model;
    if (!traits.includes('grammar') || !traits.includes('fused')) {
      throw new InferletError('unsupported', `${name} cannot hold a text to a constraint (traits grammar and fused).`);
    }
    let compiled = this.#compiled.get(name);
    if (!compiled) {
      compiled = new grammar.Compiled(name, this.#source);
      this.#compiled.set(name, compiled);
    }
    return constrainedDecoder(sequence, sampler, seed, compiled, options);
  }
}
