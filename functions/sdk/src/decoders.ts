import type { Piped, PipeRequest, RunChunk, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import { Chooser } from './chooser.ts';
import { InferletError } from './errors.ts';
import { LookingDecoder } from './looking.ts';
import { reseed } from './random.ts';
import type { Run } from './raw.ts';
import { type DeviceSampler, type Distribution, draw, type GuestSampler, type Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';

/**
 * How tokens are decoded. `ahead`: the device goes on by itself and hands the tokens over (built-in samplers only). `step`: one fused
 * call a token. `calls`: embed, forward and next distribution apart, sampled in the inferlet.
 */
export type DecodeMode = 'ahead' | 'step' | 'calls';

/** A source of tokens. It computes; {@link Sequence.accept} is for whoever takes the tokens. */
export interface Decoder {
  /** The next tokens, at least one and at most `left`. With `pipe` the platform may send their text itself, many tokens at a time. */
  next(left: number, pipe?: PipeRequest): Promise<readonly number[]>;
  /** Text of the tokens that came last that the client has been sent. */
  readonly piped?: string;
  /** Set when nothing may follow what was decoded. */
  readonly over?: boolean;
  /** Set where a call may enter its queue later than it was made: then nothing may be taken back before it has ended. */
  readonly late?: boolean;
  /** Logarithms of the probabilities of the tokens that came last, from decoders that were asked for them. */
  readonly logProbabilities?: readonly number[];
  /** Asks the device to end what is under way; what it has done by then still comes. Where `late` may be set. */
  halt?(): void;
  /** Ends decoding; `rollBack` takes back what the device did beyond the accepted tokens (not worth it for a sequence that is gone). */
  stop(rollBack: boolean): void;
}

/** Something that a generated text must fit, and that decodes on its own account. */
export interface Constraint<T = unknown> {
  /** The value that a finished text stands for. Throws when it stands for none. */
  parse(text: string): T;
  /** @internal Starts anew at the beginning of a generation. `seed` is used where the sampler has none. */
  decoder(sequence: Sequence, sampler: Sampler, seed: number): Decoder;
}

/** Tokens of one run: a longer text takes several, so that pages are not reserved long before they are used. */
const RUN_TOKENS = 128;
/** Candidates that a built-in sampler gets when it runs in the inferlet without a `topK` of its own. */
const DEFAULT_CANDIDATES = 256;

/**
 * The decoder for a sampler on a sequence's model. `seed` is used where the sampler has none; with `tells` it says how probable each token
 * was.
 */
export function decoderFor(
  sequence: Sequence,
  sampler: Sampler,
  mode: DecodeMode | undefined,
  seed: number,
  stopTokens: readonly number[],
  tells = false,
): Decoder {
  const { fused } = sequence;
  if (sampler.kind === 'guest') {
    if (mode === 'ahead') {
      throw new InferletError('invalid-argument', 'A custom sampler cannot decode ahead: it has to see every token.');
    }
    const own = sampler.seed ?? seed;
    if (tells || mode === 'calls' || !fused || sampler.also?.length)
      return new LookingDecoder(sequence, sampler, own, tells);
    return new GuestDecoder(sequence, sampler, own);
  }
  if (tells && mode !== undefined && mode !== 'calls') {
    throw new InferletError('invalid-argument', `Log-probabilities come with tokens one by one, not with "${mode}".`);
  }
  if (tells || !fused || mode === 'calls') {
    const { temperature, topK } = sampler;
    const candidates = temperature === 0 ? 1 : topK || DEFAULT_CANDIDATES;
    const drawn = (distribution: Distribution, state: { random: number }): number =>
      draw(distribution, sampler, state.random);
    return new LookingDecoder(sequence, { candidates, choose: drawn }, sampler.seed ?? seed, tells);
  }
  // A run knows nothing of adapters.
  if (mode === 'ahead' && sequence.adapter !== undefined) {
    const text = 'With an adapter tokens come one by one: leave `decode` out, or say "step" or "calls".';
    throw new InferletError('unsupported', text);
  }
  if (mode === 'step' || (mode === undefined && sequence.adapter !== undefined))
    return new StepDecoder(sequence, sampler, seed);
  return new AheadDecoder(sequence, wireSampler(sampler, sequence, seed), stopTokens);
}

/** A built-in sampler as the device takes it, for what follows a sequence as it is now. `seed` is used where the sampler has none. */
export function wireSampler(sampler: DeviceSampler, { compactions }: Sequence, seed: number): WireSampler {
  const { temperature, topK, topP, minP } = sampler;
  // QuickJS bindings cut a u32 of 2³¹ and more down to 2³¹−1; the same bits as a signed number pass whole.
  return { temperature, topK, topP, minP, seed: reseed(sampler.seed ?? seed, compactions) | 0 };
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
  piped = '';
  /** Set while text is under way to the client: nothing that it stands for may be taken back. */
  late = false;

  constructor(sequence: Sequence, sampler: WireSampler, stopTokens: readonly number[]) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#stopTokens = stopTokens;
  }

  async next(left: number, pipe?: PipeRequest): Promise<readonly number[]> {
    const sequence = this.#sequence;
    this.piped = '';
    if (!this.#run && sequence.pending > 1) return sequence.sample(this.#sampler);
    for (;;) {
      const fresh = this.#run === undefined;
      this.late = pipe !== undefined;
      this.#run ??= sequence.run(Math.min(left, RUN_TOKENS), this.#sampler, this.#stopTokens);
      const run = this.#run;
      const {
        tokens,
        finished,
        text = '',
      }: Partial<Piped> & RunChunk = pipe ? await sequence.settle(run.pipe(pipe)) : await sequence.settle(run.next());
      if (this.#run !== run) return [];
      this.piped = text;
      if (finished !== null) this.#drop();
      this.#written = sequence.cached + tokens.length;
      sequence.forwardCalls += tokens.length;
      if (tokens.length > 0) return tokens;
      if (finished === 'stopped') return [];
      if (fresh || finished === null) throw new InferletError('internal', 'A run on the device handed over no token.');
    }
  }

  halt(): void {
    this.#run?.stop();
  }

  stop(rollBack: boolean): void {
    const ahead = this.#run !== undefined || this.#sequence.cached < this.#written;
    this.#run?.stop();
    this.#drop();
    // What the device wrote beyond the accepted tokens goes.
    if (ahead && rollBack) this.#sequence.cut(this.#sequence.tokens.length);
  }

  #drop(): void {
    this.#run?.drop();
    this.#run = undefined;
  }
}

/** One fused call a token; the inferlet samples over the device's distribution. */
class GuestDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #chooser: Chooser;

  constructor(sequence: Sequence, sampler: GuestSampler, seed: number) {
    this.#sequence = sequence;
    this.#chooser = new Chooser(sampler, seed);
  }

  async next(): Promise<readonly number[]> {
    const distribution = await this.#sequence.distribution(this.#chooser.candidates);
    return [this.#chooser.choose(distribution, this.#sequence)];
  }

  stop(): void {}
}
