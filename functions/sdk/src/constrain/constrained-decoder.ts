import type { PipeRequest } from 'pie:inferlet/fused@0.1.0';
import type { Compiled, Matcher } from 'pie:inferlet/grammar@0.1.0';
import type { Sequence, StartRun, StepCall } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import { Chooser } from '../generate/chooser.ts';
import {
  AheadDecoder,
  type ConstraintOptions,
  type Decoder,
  scoringDecoder,
  wireSampler,
} from '../generate/decoders.ts';
import type { Sampler } from '../generate/samplers.ts';
import { speculativeDecoder } from '../generate/speculation.ts';
import { grammar, settle } from '../raw.ts';

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
