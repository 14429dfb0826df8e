import type { Source } from 'pie:inferlet/grammar@0.1.0';
import type { Sequence } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import type { Constraint, ConstraintOptions, Decoder } from '../generate/decoders.ts';
import type { Sampler } from '../generate/samplers.ts';
import { grammar, settle } from '../raw.ts';
import { constrainedDecoder, type ModelGrammar } from './constrained-decoder.ts';

/** The form of JSON that a constraint asks for. */
export interface JsonOptions {
  /**
   * True to allow no whitespace between JSON's own tokens (braces, commas, values): the model writes fewer tokens, and more of them are
   * forced. False by default, since a model may choose worse values where the grammar forbids the spaces that it would write.
   */
  readonly compact?: boolean;
  /**
   * False to let an object's properties come in any order, as in the standard. True by default: declared properties come in their order, which
   * guides the model and forces more tokens, and undeclared ones after them.
   */
  readonly ordered?: boolean;
}

/**
 * Constrains the text to JSON that fits a schema: a value, or its JSON as text. A schema with
 * `"x-guidance": {"whitespace_flexible": false}` is `compact`, too.
 *
 * @example
 * const pet = jsonSchema({ type: 'object', properties: { name: { type: 'string' } }, required: ['name'] });
 * const { text } = await ctx.generate({ constraint: pet, maxTokens: 64 }).collect();
 */
export function jsonSchema<T = unknown>(
  schema: object | boolean | string,
  { compact = false, ordered = true }: JsonOptions = {},
): Constraint<T> {
  const options = { ...(compact && { whitespace_flexible: false }), ...(ordered && { ordered: true }) };
  const finalSchema = Object.keys(options).length > 0 ? withOptions(schema, options) : schema;
  const val = typeof finalSchema === 'string' ? finalSchema : JSON.stringify(finalSchema);
  return new GrammarConstraint({ tag: 'json-schema', val }, (text) => JSON.parse(text) as T);
}

/** The schema with options of its JSON in the keyword `x-guidance`. The schema's own options take precedence. */
function withOptions(schema: object | boolean | string, options: object): object | boolean | string {
  const value = typeof schema === 'string' ? parsed(schema) : schema;
  // The schemas `true` and `{}` accept the same values.
  const members = value === true ? {} : value;
  if (typeof members === 'object' && members !== null && !Array.isArray(members))
    return { ...members, 'x-guidance': { ...options, ...guidanceOf(members) } };
  // This is the schema `false`, which no text fits, or no schema at all. The platform reports both.
  return schema;
}

function guidanceOf(schema: object): object {
  const guidance = (schema as { 'x-guidance'?: unknown })['x-guidance'];
  return typeof guidance === 'object' && guidance !== null ? guidance : {};
}

/** The value of a JSON text; undefined for a text that is not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Constrains the text to match a regular expression in full. Flags are not supported. */
export function regex(pattern: string | RegExp): Constraint<string> {
  if (pattern instanceof RegExp && pattern.flags !== '') {
    throw new InferletError(
      'invalid-argument',
      `The flags "${pattern.flags}" of a regular expression are not supported.`,
    );
  }
  return new GrammarConstraint({ tag: 'regex', val: typeof pattern === 'string' ? pattern : pattern.source }, identity);
}

/** Constrains the text to a grammar in EBNF (llama.cpp's GBNF) that starts at `root`. */
export const ebnf = (text: string): Constraint<string> => new GrammarConstraint({ tag: 'ebnf', val: text }, identity);

/** Constrains the text to any JSON. */
export const json = (options?: JsonOptions): Constraint => jsonSchema(true, options);

const identity = (text: string): string => text;

/** Compiles the grammar once for each model, at the first generation on it. Each generation starts at the grammar's beginning. */
class GrammarConstraint<T> implements Constraint<T> {
  readonly parse: (text: string) => T;
  readonly #source: Source;
  /** Compiled grammars by the name of the model. */
  readonly #grammars = new Map<string, ModelGrammar>();

  constructor(source: Source, parse: (text: string) => T) {
    this.#source = source;
    this.parse = parse;
  }

  decoder(sequence: Sequence, sampler: Sampler, seed: number, options: ConstraintOptions): Decoder {
    const { name, traits } = sequence.model;
    if (!traits.includes('grammar') || !traits.includes('fused')) {
      throw new InferletError(
        'unsupported',
        `${name} supports no constraints (it lacks the traits grammar and fused).`,
      );
    }
    return constrainedDecoder(sequence, sampler, seed, this.#grammars.get(name) ?? this.#make(name), options);
  }

  #make(model: string): ModelGrammar {
    const compiled = new grammar.Compiled(model, this.#source);
    let outcome: Promise<void> | undefined;
    const ready = (): Promise<void> => {
      outcome ??= settle(compiled.ready()).catch((error: unknown) => {
        // Compile again at the next generation, unless the source is at fault: the failure may have been temporary.
        if (!(error instanceof InferletError && error.code === 'invalid-argument')) {
          this.#grammars.delete(model);
          compiled.drop();
        }
        throw error;
      });
      return outcome;
    };
    const made = { compiled, ready };
    this.#grammars.set(model, made);
    return made;
  }
}
