import type { PipeRequest } from 'pie:inferlet/fused@0.1.0';
import type { Compiled, Matcher, Source } from 'pie:inferlet/grammar@0.1.0';
import type { Sequence, StartRun, StepCall } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import {
  AheadDecoder,
  Chooser,
  type Constraint,
  type ConstraintOptions,
  type Decoder,
  scoringDecoder,
  wireSampler,
} from '../generate/decoders.ts';
import type { Sampler } from '../generate/samplers.ts';
import { speculativeDecoder } from '../generate/speculation.ts';
import { grammar, settle } from '../raw.ts';
import { issuesText, jsonSchemaOf, type OutputOf, type StandardSchema } from './standard-schema.ts';

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
  /**
   * False to let a text end that breaks keywords which no grammar can keep, such as `uniqueItems` over texts. True by default: the generation then
   * fails with `invalid-argument`, and names these keywords.
   */
  readonly checked?: boolean;
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
  { compact = false, ordered = true, checked = true }: JsonOptions = {},
): Constraint<T> {
  const options = {
    ...(compact && { whitespace_flexible: false }),
    ...(ordered && { ordered: true }),
    ...(!checked && { checked: false }),
  };
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

/**
 * Constrains the text to JSON that fits a schema of zod (4.2 or later) or another library that implements Standard Schema. The schema also
 * types the generation's `value()`.
 * @param toJsonSchema for schemas that cannot convert themselves: `z.toJSONSchema` with zod/mini, which makes smaller components
 *
 * @example
 * const person = typed(z.object({ name: z.string(), age: z.int() }));
 * const { name, age } = await ctx.generate({ constraint: person, maxTokens: 200 }).value();
 */
export function typed<Schema extends StandardSchema>(
  schema: Schema,
  toJsonSchema?: (schema: Schema) => object,
  options?: JsonOptions,
): Constraint<OutputOf<Schema>> {
  const grammar = jsonSchemaOf(schema, toJsonSchema);
  if (!grammar) {
    throw new InferletError(
      'invalid-argument',
      'This schema cannot convert itself to a JSON schema: pass a converter (zod/mini: typed(schema, z.toJSONSchema)).',
    );
  }
  const constraint = jsonSchema(grammar, options);
  return {
    decoder: (sequence, sampler, seed, options) => constraint.decoder(sequence, sampler, seed, options),
    parse(text) {
      const result = schema['~standard'].validate(constraint.parse(text));
      if (result instanceof Promise) {
        throw new InferletError('unsupported', 'A schema that checks asynchronously cannot be used here.');
      }
      if (result.issues === undefined) return result.value as OutputOf<Schema>;
      throw new InferletError('invalid-argument', `The text does not fit its schema: ${issuesText(result.issues)}`);
    },
  };
}

/** Maximum number of forced tokens that one call of the matcher returns. */
const MAX_JUMP = 4096;

/** A grammar for the vocabulary of one model. */
export interface ModelGrammar {
  readonly compiled: Compiled;
  /** Waits until the grammar is compiled. Each call has the outcome of the first one. */
  ready(): Promise<void>;
}

/** The decoder for a sampler on a sequence under a grammar. `seed` applies if the sampler has none. */
export function constrainedDecoder(
  sequence: Sequence,
  sampler: Sampler,
  seed: number,
  { compiled, ready }: ModelGrammar,
  options: ConstraintOptions,
): Decoder {
  const { speculator, stopTokens, logProbabilities } = options;
  const matcher = new grammar.Matcher(compiled);
  const { adapter } = sequence;
  const call: StepCall = (queue, request) =>
    adapter === undefined && request.rows === 1
      ? grammar.step(queue, matcher, request)
      : grammar.verify(queue, matcher, adapter, request);
  const make = (): Decoder => {
    if (speculator) return speculativeDecoder(sequence, sampler, speculator, seed, stopTokens, call);
    const needsTokens = sampler.kind === 'guest' && sampler.also?.length;
    if (logProbabilities || needsTokens) return scoringDecoder(sequence, sampler, seed, logProbabilities, matcher);
    // Runs do not support adapters.
    if (sampler.kind === 'device' && options.ahead && adapter === undefined) {
      const run: StartRun = (queue, request) => grammar.startRun(queue, matcher, request);
      return new AheadDecoder(sequence, wireSampler(sampler, sequence, seed), stopTokens, { step: call, run });
    }
    return new MaskedSource(sequence, sampler, sampler.seed ?? seed, call);
  };
  try {
    return new ConstrainedDecoder(sequence, make(), ready, matcher, options, sampler.kind === 'guest');
  } catch (error) {
    matcher.drop();
    throw error;
  }
}

/** Takes tokens from a decoder that obeys the grammar's masks, and forced tokens from the matcher without decoding them. */
class ConstrainedDecoder implements Decoder {
  readonly late = true;
  uncomputed = 1;
  piped = '';
  readonly #sequence: Sequence;
  readonly #source: Decoder;
  readonly #ready: () => Promise<void>;
  readonly #options: ConstraintOptions;
  /** True with a sampler of the program, which may choose tokens that the grammar does not allow. */
  readonly #guest: boolean;
  #matcher: Matcher | undefined;
  #begun = false;
  /** Tokens that the matcher has accepted and the generation does not have yet. The device has computed the first `#computed`. */
  #accepted: readonly number[] = [];
  #computed = 0;
  #mustEnd = false;

  constructor(
    sequence: Sequence,
    source: Decoder,
    ready: () => Promise<void>,
    matcher: Matcher,
    options: ConstraintOptions,
    guest: boolean,
  ) {
    this.#sequence = sequence;
    this.#source = source;
    this.#ready = ready;
    this.#matcher = matcher;
    this.#options = options;
    this.#guest = guest;
  }

  get over(): boolean {
    return this.#mustEnd && this.#accepted.length === 0;
  }

  get logProbabilities(): readonly number[] | undefined {
    return this.#source.logProbabilities;
  }

  async next(left: number, pipe?: PipeRequest): Promise<readonly number[]> {
    const matcher = this.#matcher;
    this.piped = '';
    if (!matcher) return [];
    if (this.#accepted.length === 0) {
      // Report a grammar that does not compile before computing anything.
      await this.#ready();
      // The decoder may have been stopped during the wait.
      if (this.#matcher !== matcher) return [];
      // A text may be forced from its beginning.
      if (!this.#begun) await this.#accept(matcher, [], left);
      this.#begun = true;
    }
    if (this.#accepted.length === 0 && this.#matcher === matcher) {
      const source = this.#source;
      const tokens = await source.next(left, pipe);
      if (source instanceof AheadDecoder && source.source !== 'step') return this.#takeRun(matcher, source, tokens);
      if (this.#matcher === matcher) await this.#accept(matcher, tokens, left);
    }
    if (this.#matcher !== matcher) return [];
    const count = this.#options.jump === 'one-by-one' ? 1 : this.#accepted.length;
    const tokens = this.#accepted.slice(0, count);
    const computed = Math.min(count, this.#computed);
    this.#accepted = this.#accepted.slice(count);
    this.#computed -= computed;
    this.uncomputed = this.#sequence.pending + count - computed;
    return tokens;
  }

  halt(): void {
    this.#source.halt?.();
  }

  stop(rollBack: boolean): void {
    this.#matcher?.drop();
    this.#matcher = undefined;
    this.#source.stop(rollBack);
  }

  /** Takes the tokens of a run. The matcher has accepted all of them; the device has computed all but the last. */
  async #takeRun(
    matcher: Matcher,
    { source, piped }: AheadDecoder,
    tokens: readonly number[],
  ): Promise<readonly number[]> {
    if (source === 'ended') this.#mustEnd = (await settle(matcher.status())).mustEnd;
    this.piped = piped;
    this.uncomputed = 1;
    return tokens;
  }

  /**
   * Accepts decoded tokens and the forced tokens after them, at most `most` in all. The device has computed all decoded tokens but the last. If
   * the text must end after a decoded token, or forced tokens follow it, the later decoded tokens are wrong: they are discarded.
   */
  async #accept(matcher: Matcher, decoded: readonly number[], most: number): Promise<void> {
    const guessed = decoded.slice(0, -1);
    const jumps = this.#options.jump !== 'none';
    // With jumps, guessed tokens are accepted one by one, because forced tokens may follow any of them.
    const parts = (jumps ? guessed.map((token) => [token]) : [guessed]).filter((part) => part.length > 0);
    const tokens: number[] = [];
    for (const part of [...parts, decoded.slice(-1)]) {
      const room = Math.min(most - tokens.length - part.length, MAX_JUMP);
      const [fits, jumped, { mustEnd }] = await Promise.all([
        settle(matcher.accept(part)),
        jumps && room > 0 ? settle(matcher.jump(room)) : [],
        settle(matcher.status()),
      ]);
      if (!fits) {
        const fault = this.#guest ? 'invalid-argument' : 'internal';
        throw new InferletError(fault, `Token ${part} was chosen, which the grammar does not allow.`);
      }
      tokens.push(...part);
      this.#computed = Math.min(tokens.length, guessed.length);
      for (const token of jumped) tokens.push(token);
      this.#mustEnd = mustEnd;
      if (mustEnd || jumped.length > 0) break;
    }
    // Forced tokens count as generated, discarded ones do not.
    this.#source.skip?.(tokens.length - decoded.length);
    this.#accepted = tokens;
  }
}

/** Decodes with one call per token, in which the grammar masks the logits. */
class MaskedSource implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: Sampler;
  readonly #seed: number;
  readonly #chooser: Chooser | undefined;
  readonly #call: StepCall;

  constructor(sequence: Sequence, sampler: Sampler, seed: number, call: StepCall) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = seed;
    this.#chooser = sampler.kind === 'guest' ? new Chooser(sampler, seed) : undefined;
    this.#call = call;
  }

  async next(): Promise<readonly number[]> {
    const sampler = this.#sampler;
    if (sampler.kind === 'guest') {
      const distribution = await this.#sequence.distribution(sampler.candidates, this.#call);
      return [(this.#chooser as Chooser).choose(distribution, this.#sequence)];
    }
    const tokens = await this.#sequence.sample(wireSampler(sampler, this.#sequence, this.#seed), this.#call);
    if (tokens.length === 0) throw new InferletError('internal', 'The device sampled no token.');
    return tokens;
  }

  skip(tokens: number): void {
    this.#chooser?.skip(tokens);
  }

  stop(): void {}
}
