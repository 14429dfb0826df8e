import type { Compiled, Matcher, Source } from 'pie:inferlet/grammar@0.1.0';
import { Chooser } from './chooser.ts';
import { type Constraint, type Decoder, type Jump, wireSampler } from './decoders.ts';
import { InferletError } from './errors.ts';
import { grammar, settle } from './raw.ts';
import type { Sampler } from './samplers.ts';
import type { Sequence, StepCall } from './sequence.ts';

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

  decoder(sequence: Sequence, sampler: Sampler, seed: number, jump: Jump): Decoder {
    const { name, traits } = sequence.model;
    if (!traits.includes('grammar') || !traits.includes('fused')) {
      throw new InferletError('unsupported', `${name} cannot hold a text to a constraint (traits grammar and fused).`);
    }
    if (sequence.adapter !== undefined) {
      throw new InferletError('unsupported', 'A text cannot be held to a constraint with an adapter.');
    }
    let compiled = this.#compiled.get(name);
    if (!compiled) {
      compiled = new grammar.Compiled(name, this.#source);
      this.#compiled.set(name, compiled);
    }
    return new ConstrainedDecoder(sequence, sampler, seed, compiled, jump);
  }
}

/** Most tokens of one jump. */
const MAX_JUMP = 4096;

/** Decodes by one fused call per token, masked by a matcher that accepts each token. Forced tokens need no call. */
class ConstrainedDecoder implements Decoder {
  readonly late = true;
  readonly uncomputed = true;
  readonly #sequence: Sequence;
  readonly #sampler: Sampler;
  readonly #seed: number;
  readonly #chooser: Chooser | undefined;
  readonly #compiled: Compiled;
  readonly #jump: Jump;
  readonly #call: StepCall;
  #matcher: Matcher | undefined;
  #begun = false;
  /** Tokens that the matcher has accepted and the generation does not have yet. */
  #accepted: readonly number[] = [];
  #mustEnd = false;

  constructor(sequence: Sequence, sampler: Sampler, seed: number, compiled: Compiled, jump: Jump) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = sampler.seed ?? seed;
    this.#chooser = sampler.kind === 'guest' ? new Chooser(sampler, this.#seed) : undefined;
    this.#compiled = compiled;
    this.#jump = jump;
    const matcher = new grammar.Matcher(compiled);
    this.#matcher = matcher;
    this.#call = (queue, request) => grammar.step(queue, matcher, request);
  }

  get over(): boolean {
    return this.#mustEnd && this.#accepted.length === 0;
  }

  async next(left: number): Promise<readonly number[]> {
    const matcher = this.#matcher;
    if (!matcher) return [];
    if (this.#accepted.length === 0) {
      // Report a grammar that does not compile before computing anything.
      await settle(this.#compiled.ready());
      // The decoder may have been stopped during each wait.
      if (this.#matcher !== matcher) return [];
      // A text may be forced from its beginning.
      if (!this.#begun && this.#jump !== 'none') this.#accepted = await this.#accept(matcher, [], left);
      this.#begun = true;
      if (this.#matcher !== matcher) return [];
    }
    if (this.#accepted.length === 0) {
      const token = await this.#decode();
      if (this.#matcher !== matcher) return [];
      this.#accepted = await this.#accept(matcher, [token], left - 1);
      if (this.#matcher !== matcher) return [];
    }
    const count = this.#jump === 'one-by-one' ? 1 : this.#accepted.length;
    const tokens = this.#accepted.slice(0, count);
    this.#accepted = this.#accepted.slice(count);
    return tokens;
  }

  stop(): void {
    this.#matcher?.drop();
    this.#matcher = undefined;
  }

  /** Accepts decoded tokens, and up to `most` forced ones behind them. Returns all of them. */
  async #accept(matcher: Matcher, tokens: readonly number[], most: number): Promise<readonly number[]> {
    const jump = this.#jump !== 'none' && most > 0;
    const [fits, jumped, { mustEnd }] = await Promise.all([
      settle(matcher.accept(tokens)),
      jump ? settle(matcher.jump(Math.min(most, MAX_JUMP))) : [],
      settle(matcher.status()),
    ]);
    if (!fits) {
      const fault = this.#chooser ? 'invalid-argument' : 'internal';
      throw new InferletError(fault, `Token ${tokens} was chosen, which the grammar does not allow.`);
    }
    this.#chooser?.skip(jumped.length);
    this.#mustEnd = mustEnd;
    return [...tokens, ...jumped];
  }

  async #decode(): Promise<number> {
    const sampler = this.#sampler;
    if (sampler.kind === 'guest') {
      const distribution = await this.#sequence.distribution(sampler.candidates, this.#call);
      return (this.#chooser as Chooser).choose(distribution, this.#sequence);
    }
    const [token] = await this.#sequence.sample(wireSampler(sampler, this.#sequence, this.#seed), this.#call);
    if (token === undefined) throw new InferletError('internal', 'The device sampled no token.');
    return token;
  }
}
