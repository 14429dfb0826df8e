import type { RunChunk, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import { InferletError } from './errors.ts';
import { reseed, uniform } from './random.ts';
import { type Run, settle } from './raw.ts';
import { type DeviceSampler, type Distribution, draw, type GuestSampler, type Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';

/**
 * How tokens are decoded. `ahead`: the device goes on by itself and hands the tokens over (built-in samplers only). `step`: one fused
 * call a token. `calls`: embed, forward and next distribution apart, sampled in the inferlet.
 */
export type DecodeMode = 'ahead' | 'step' | 'calls';

/** A source of tokens. It computes; {@link Sequence.accept} is for whoever takes the tokens. */
export interface Decoder {
  /** The next tokens, at least one and at most `left`. */
  next(left: number): Promise<readonly number[]>;
  /** Set when nothing may follow what was decoded. */
  readonly over?: boolean;
  /** Ends decoding; `rollBack` takes back what the device did beyond the accepted tokens (not worth it once a call has failed). */
  stop(rollBack: boolean): void;
}

/** Something that a generated text must fit, and that decodes on its own account. */
export interface Constraint {
  /** @internal Starts anew at the beginning of a generation. `seed` is used where the sampler has none. */
  decoder(sequence: Sequence, sampler: Sampler, seed: number): Decoder;
}

/** Tokens of one run: a longer text takes several, so that pages are not reserved long before they are used. */
const RUN_TOKENS = 128;
/** Candidates that a built-in sampler gets when it runs in the inferlet without a `topK` of its own. */
const DEFAULT_CANDIDATES = 256;

/** The decoder for a sampler on a sequence's model. `seed` is used where the sampler has none. */
export function decoderFor(
  sequence: Sequence,
  sampler: Sampler,
  mode: DecodeMode | undefined,
  seed: number,
  stopTokens: readonly number[],
): Decoder {
  const fused = sequence.model.traits.includes('fused');
  if (sampler.kind === 'guest') {
    if (mode === 'ahead') {
      throw new InferletError('invalid-argument', 'A custom sampler cannot decode ahead: it has to see every token.');
    }
    return guestDecoder(sequence, sampler, fused && mode !== 'calls', sampler.seed ?? seed);
  }
  if (!fused || mode === 'calls') {
    const { temperature, topK } = sampler;
    const candidates = temperature === 0 ? 1 : topK || DEFAULT_CANDIDATES;
    const drawn = (distribution: Distribution, state: { random: number }): number =>
      draw(distribution, sampler, state.random);
    return guestDecoder(sequence, { candidates, choose: drawn }, false, sampler.seed ?? seed);
  }
  if (mode === 'step') return new StepDecoder(sequence, sampler, seed);
  return new AheadDecoder(sequence, wireSampler(sampler, sequence, seed), stopTokens);
}

/** A built-in sampler as the device takes it, for what follows a sequence as it is now. `seed` is used where the sampler has none. */
export function wireSampler(sampler: DeviceSampler, { compactions }: Sequence, seed: number): WireSampler {
  const { temperature, topK, topP, minP } = sampler;
  // QuickJS bindings cut a u32 of 2³¹ and more down to 2³¹−1; the same bits as a signed number pass whole.
  return { temperature, topK, topP, minP, seed: reseed(sampler.seed ?? seed, compactions) | 0 };
}

/** The token that a sampler of the inferlet's chooses to follow a sequence. */
export function choose(
  sampler: Pick<GuestSampler, 'choose'>,
  distribution: Distribution,
  { tokens, length, compactions, model }: Sequence,
  seed: number,
): number {
  const token = sampler.choose(distribution, { tokens, random: uniform(reseed(seed, compactions), length) });
  if (Number.isInteger(token) && token >= 0 && token < model.vocabularySize) return token;
  throw new InferletError('invalid-argument', `The sampler chose ${token}, which is no token id.`);
}

/** One fused call a token; the device samples. */
class StepDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: DeviceSampler;
  readonly #seed: number;

  constructor(sequence: Sequence, sampler: DeviceSampler, seed: number) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = seed;
  }

  next(): Promise<readonly number[]> {
    return this.#sequence.sample(wireSampler(this.#sampler, this.#sequence, this.#seed));
  }

  stop(): void {}
}

/** Runs on the device, each begun when the one before has ended; the prompt is computed by a fused call that samples the first token. */
class AheadDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: WireSampler;
  readonly #stopTokens: readonly number[];
  #run: Run | undefined;
  /** Slots that the device is known to have filled. */
  #written = 0;

  constructor(sequence: Sequence, sampler: WireSampler, stopTokens: readonly number[]) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#stopTokens = stopTokens;
  }

  async next(left: number): Promise<readonly number[]> {
    const sequence = this.#sequence;
    if (!this.#run && sequence.pending > 1) return sequence.sample(this.#sampler);
    for (;;) {
      const fresh = this.#run === undefined;
      this.#run ??= sequence.run(Math.min(left, RUN_TOKENS), this.#sampler, this.#stopTokens);
      const run = this.#run;
      const { tokens, finished }: RunChunk = await settle(run.next());
      if (this.#run !== run) return [];
      if (finished !== null) this.#drop();
      this.#written = sequence.cached + tokens.length;
      if (tokens.length > 0) return tokens;
      if (fresh || finished === null) throw new InferletError('internal', 'A run on the device handed over no token.');
    }
  }

  stop(rollBack: boolean): void {
    const ahead = this.#run !== undefined || this.#sequence.cached < this.#written;
    this.#run?.stop();
    this.#drop();
    // What the device wrote beyond the accepted tokens goes.
    if (ahead && rollBack) this.#sequence.cut(this.#sequence.tokens.length - 1);
  }

  #drop(): void {
    this.#run?.drop();
    this.#run = undefined;
  }
}

/** Samples in the inferlet over the device's distribution. */
function guestDecoder(
  sequence: Sequence,
  sampler: Pick<GuestSampler, 'candidates' | 'choose'>,
  fused: boolean,
  seed: number,
): Decoder {
  const { candidates } = sampler;
  return {
    async next() {
      const distribution = fused ? sequence.distribution(candidates) : sequence.plainDistribution(candidates);
      return [choose(sampler, await distribution, sequence, seed)];
    },
    stop() {},
  };
}
