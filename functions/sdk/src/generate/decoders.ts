import type { Piped, PipeRequest, RunChunk, Sampler as WireSampler } from 'pie:inferlet/fused@0.1.0';
import type { Matcher } from 'pie:inferlet/grammar@0.1.0';
import type { Sequence, StartRun, StepCall } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import { allocate, outputText, type Run, settle } from '../raw.ts';
import {
  type DeviceSampler,
  type Distribution,
  draw,
  drawOf,
  type GuestSampler,
  type RunSampler,
  reseed,
  type Sampler,
} from './samplers.ts';
import type { Proposal, Speculator } from './speculation.ts';

/**
 * Decoding mode. `ahead`: the device decodes on its own and hands over the tokens (built-in samplers, and chains of
 * `processors` that the host can apply). `step`: one fused call per token. `calls`: separate embed, forward and
 * next-distribution calls; the inferlet samples.
 */
export type DecodeMode = 'ahead' | 'step' | 'calls';

/** A source of tokens. It only computes; its caller passes the tokens to {@link Sequence.accept}. */
export interface Decoder {
  /** The next tokens, at least one and at most `left`. With `pipe` the platform may send their text itself, many tokens at a time. */
  next(left: number, pipe?: PipeRequest): Promise<readonly number[]>;
  /** The part of the last tokens' text that the platform has sent to the client. */
  readonly piped?: string;
  /** Number of tokens at the sequence's end, once the last tokens are appended, that the device has not computed; by default 1. */
  readonly uncomputed?: number;
  /** True when no token may follow. */
  readonly over?: boolean;
  /** True while tokens must not be taken back before the current call has ended: it may not be in its queue yet, or its text may be on its way. */
  readonly late?: boolean;
  /** Log-probabilities of the last tokens, from decoders that were asked for them. */
  readonly logProbabilities?: readonly number[];
  /** Counts the sequence's last `tokens` tokens, which another decoder chose, as tokens of the generation. A number below 0 lowers the count. */
  skip?(tokens: number): void;
  /** Asks the device to end the current call; tokens decoded until then still arrive. For decoders that may set `late`. */
  halt?(): void;
  /** Ends decoding. `rollBack` drops what the device wrote beyond the accepted tokens (unneeded for a released sequence). */
  stop(rollBack: boolean): void;
}

/** Treatment of forced tokens, to which a constraint leaves no alternative. `none` samples them; `at-once` and `one-by-one` append them unsampled. */
export type Jump = 'none' | 'at-once' | 'one-by-one';

/** A rule that a generated text must fit, with a decoder that enforces it. */
export interface Constraint<T = unknown> {
  /** The value of a finished text. Throws when the text has none. */
  parse(text: string): T;
  /** @internal A fresh decoder for one generation. `seed` applies if the sampler has none. */
  decoder(sequence: Sequence, sampler: Sampler, seed: number, options: ConstraintOptions): Decoder;
}

/** The options of a generation that concern the decoder of its constraint. */
export interface ConstraintOptions {
  readonly jump: Jump;
  /** True to decode in runs where the sequence can. */
  readonly ahead: boolean;
  readonly speculator: Speculator | Proposal | undefined;
  readonly stopTokens: readonly number[];
  readonly logProbabilities: boolean;
}

/** Tokens of one run. A longer text takes several runs, so that pages are not reserved long before their use. */
const RUN_TOKENS = 128;
/** A run with changed logits needs the tokens that the generation has chosen, at most this many. Beyond them, the inferlet samples. */
const MAX_CHOSEN = 8192;
/** Maximum number of runs of one inferlet that the platform pipes at once. */
const MAX_PIPES = 256;
/** Number of runs that are piped. */
let pipes = 0;
/** Candidates for a built-in sampler that runs in the inferlet and sets no smaller `topK`: the most that a host returns. */
const DEFAULT_CANDIDATES = 256;

/**
 * The decoder for a sampler on a sequence's model. `seed` applies if the sampler has none. Only decoders of runs read `stopTokens`. With
 * `withLogProbs`, the decoder reports each token's log-probability.
 */
export function decoderFor(
  sequence: Sequence,
  sampler: Sampler,
  mode: DecodeMode | undefined,
  seed: number,
  stopTokens: () => readonly number[],
  withLogProbs = false,
): Decoder {
  const { fused } = sequence;
  if (sampler.kind === 'guest') {
    const { ahead } = sampler;
    // A run cannot replace a sampler with another `choose` than its chain's, or one that sees fewer candidates.
    const isReplaceable = ahead?.choose === sampler.choose && sampler.candidates === DEFAULT_CANDIDATES;
    if (ahead && isReplaceable && !withLogProbs && (mode ?? 'ahead') === 'ahead' && offersPenalties(sequence))
      return new PenalizedDecoder(sequence, sampler, ahead, seed, stopTokens());
    if (mode === 'ahead') {
      throw new InferletError('invalid-argument', 'A custom sampler cannot decode ahead: it has to see every token.');
    }
    const ownSeed = sampler.seed ?? seed;
    if (withLogProbs || mode === 'calls' || !fused || sampler.also?.length)
      return scoringDecoder(sequence, sampler, seed, withLogProbs);
    return new GuestDecoder(sequence, sampler, ownSeed);
  }
  if (withLogProbs && mode !== undefined && mode !== 'calls') {
    throw new InferletError('invalid-argument', `Log-probabilities come with tokens one by one, not with "${mode}".`);
  }
  if (withLogProbs || !fused || mode === 'calls') {
    return scoringDecoder(sequence, sampler, seed, withLogProbs);
  }
  if (mode === 'ahead' && sequence.adapter !== undefined) {
    const text = 'Runs do not support adapters: leave `decode` out, or set it to "step" or "calls".';
    throw new InferletError('unsupported', text);
  }
  if (mode === 'step' || (mode === undefined && sequence.adapter !== undefined))
    return new StepDecoder(sequence, sampler, seed);
  return new AheadDecoder(sequence, wireSampler(sampler, sequence, seed), stopTokens());
}

/** True when the host can change logits in a run of a sequence. Some devices cannot, and runs do not support adapters. */
const offersPenalties = ({ model, adapter }: Sequence): boolean =>
  model.traits.includes('penalties') && adapter === undefined;

/** A decoder that samples in the inferlet: with `withLogProbs`, it reports log-probabilities; with `matcher`, it obeys the matcher's masks. */
export function scoringDecoder(
  sequence: Sequence,
  sampler: Sampler,
  seed: number,
  withLogProbs: boolean,
  matcher?: Matcher,
): ScoringDecoder {
  const ownSeed = sampler.seed ?? seed;
  if (sampler.kind === 'guest') return new ScoringDecoder(sequence, sampler, ownSeed, withLogProbs, matcher);
  const { temperature, topK } = sampler;
  const candidates = temperature === 0 ? 1 : Math.min(topK || DEFAULT_CANDIDATES, DEFAULT_CANDIDATES);
  const drawToken = (distribution: Distribution, state: { random: number }): number =>
    draw(distribution, sampler, state.random);
  return new ScoringDecoder(sequence, { candidates, choose: drawToken }, ownSeed, withLogProbs, matcher);
}

/** A built-in sampler in the device's form, for the present state of a sequence. `seed` applies if the sampler has none. */
export function wireSampler(sampler: DeviceSampler, { compactions }: Sequence, seed: number): WireSampler {
  const { temperature, topK, topP, minP } = sampler;
  // QuickJS bindings clamp a u32 of 2³¹ or more to 2³¹−1; the same bits as a signed number pass unchanged.
  return { temperature, topK, topP, minP, seed: reseed(sampler.seed ?? seed, compactions) | 0 };
}

/** One fused call per token; the device samples. */
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

/** The calls of a decoder whose tokens are masked, or whose logits are changed. */
export interface OwnCalls {
  readonly step?: StepCall;
  readonly run: StartRun;
}

/** Consecutive runs on the device. A fused call first computes the prompt and samples the first token. */
export class AheadDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: WireSampler;
  readonly #stopTokens: readonly number[];
  readonly #own: OwnCalls | undefined;
  #run: Run | undefined;
  /** Number of slots that the device is known to have filled. */
  #written = 0;
  piped = '';
  /** The source of the last tokens: a step, a run that goes on, or a run that has ended. */
  source: 'step' | 'run' | 'ended' = 'step';
  /** True while the platform may be sending text to the client: the tokens of this text must not be taken back. */
  late = false;

  constructor(sequence: Sequence, sampler: WireSampler, stopTokens: readonly number[], own?: OwnCalls) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#stopTokens = stopTokens;
    this.#own = own;
  }

  async next(left: number, pipe?: PipeRequest): Promise<readonly number[]> {
    const sequence = this.#sequence;
    this.piped = '';
    this.source = 'step';
    if (!this.#run && sequence.pending > 1) return sequence.sample(this.#sampler, this.#own?.step);
    for (;;) {
      const fresh = this.#run === undefined;
      this.late = pipe !== undefined;
      this.#run ??= sequence.run(Math.min(left, RUN_TOKENS), this.#sampler, this.#stopTokens, this.#own?.run);
      const run = this.#run;
      const { tokens, finished, text = '' } = await this.#chunk(run, pipe);
      if (this.#run !== run) return [];
      this.piped = text;
      this.source = finished === null ? 'run' : 'ended';
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
    if (ahead && rollBack) this.#sequence.cut(this.#sequence.tokens.length);
  }

  /** The next tokens of a run. With `pipe` the platform sends their text, unless it pipes as many runs as it may. */
  async #chunk(run: Run, pipe: PipeRequest | undefined): Promise<Partial<Piped> & RunChunk> {
    if (!pipe || pipes >= MAX_PIPES) return this.#sequence.settle(run.next());
    pipes++;
    try {
      return await this.#sequence.settle(run.pipe(pipe));
    } finally {
      pipes--;
    }
  }

  #drop(): void {
    this.#run?.drop();
    this.#run = undefined;
  }
}

/** One fused call per token; the inferlet samples from the device's distribution. */
class GuestDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #chooser: Chooser;

  constructor(sequence: Sequence, sampler: GuestSampler, seed: number) {
    this.#sequence = sequence;
    this.#chooser = new Chooser(sampler, seed);
  }

  skip(tokens: number): void {
    this.#chooser.skip(tokens);
  }

  async next(): Promise<readonly number[]> {
    const distribution = await this.#sequence.distribution(this.#chooser.candidates);
    return [this.#chooser.choose(distribution, this.#sequence)];
  }

  stop(): void {}
}

/**
 * Consecutive runs whose logits the host changes. The host also draws the first token after a prompt, so that equal seeds give equal tokens wherever
 * the generation was split. The inferlet itself samples only once the generation has more tokens than a run can count.
 */
class PenalizedDecoder implements Decoder {
  readonly #sequence: Sequence;
  /** Asks for the tokens by name that the chain may raise: they may be outside the candidates. */
  readonly #guest: GuestDecoder | ScoringDecoder;
  readonly #runs: AheadDecoder;
  /** The tokens of the generation so far. */
  readonly #chosen: number[] = [];
  /** True when the inferlet sampled the last token. */
  #sampledHere = false;

  constructor(
    sequence: Sequence,
    sampler: GuestSampler,
    ahead: RunSampler,
    seed: number,
    stopTokens: readonly number[],
  ) {
    this.#sequence = sequence;
    this.#guest = sampler.also?.length
      ? scoringDecoder(sequence, sampler, seed, false)
      : new GuestDecoder(sequence, sampler, sampler.seed ?? seed);
    const run: StartRun = (queue, request) => ahead.start(queue, request, this.#chosen);
    this.#runs = new AheadDecoder(sequence, wireSampler(ahead.sampler, sequence, seed), stopTokens, { run });
  }

  get piped(): string {
    return this.#sampledHere ? '' : this.#runs.piped;
  }

  get late(): boolean {
    return this.#runs.late;
  }

  async next(left: number, pipe?: PipeRequest): Promise<readonly number[]> {
    this.#sampledHere = this.#runs.source !== 'run' && this.#chosen.length > MAX_CHOSEN;
    const tokens = this.#sampledHere ? await this.#guest.next() : await this.#decode(left, pipe);
    if (!this.#sampledHere) this.#guest.skip(tokens.length);
    this.#chosen.push(...tokens);
    return tokens;
  }

  /** The next tokens of a run. A run begins with one token, so the tokens before it are computed first. */
  async #decode(left: number, pipe: PipeRequest | undefined): Promise<readonly number[]> {
    const prefill = this.#sequence.prefill();
    const tokens = this.#runs.next(left, pipe);
    // Both calls are under way. If both fail, the failure of `prefill` caused the other one, and `Promise.all` reports it.
    await Promise.all([prefill, tokens]);
    return tokens;
  }

  skip(tokens: number): void {
    this.#guest.skip(tokens);
    const { tokens: all } = this.#sequence;
    this.#chosen.push(...all.slice(all.length - tokens));
  }

  halt(): void {
    this.#runs.halt();
  }

  stop(rollBack: boolean): void {
    this.#runs.stop(rollBack);
  }
}

/**
 * Decodes by separate embed, forward and next-distribution calls. The decoder thus has the state after the last token, and can ask for the
 * probabilities of single tokens: the improbable tokens that a sampler needs, and the chosen token.
 */
class ScoringDecoder implements Decoder {
  /** Log-probability of the last token in the model's own distribution. */
  logProbabilities: readonly number[] = [];
  readonly #sequence: Sequence;
  readonly #chooser: Chooser;
  readonly #askedTokens: Uint32Array;
  readonly #withLogProbs: boolean;
  readonly #matcher: Matcher | undefined;

  constructor(
    sequence: Sequence,
    sampler: Pick<GuestSampler, 'candidates' | 'choose' | 'also'>,
    seed: number,
    withLogProbs: boolean,
    matcher?: Matcher,
  ) {
    this.#sequence = sequence;
    this.#chooser = new Chooser(sampler, seed);
    this.#askedTokens = Uint32Array.from(sampler.also ?? []);
    this.#withLogProbs = withLogProbs;
    this.#matcher = matcher;
  }

  skip(tokens: number): void {
    this.#chooser.skip(tokens);
  }

  async next(): Promise<readonly number[]> {
    const sequence = this.#sequence;
    const { queue } = sequence;
    const start = sequence.firstPending(true);
    const embeds = sequence.advance();
    const state = embeds.at(-1) as number;
    const ask = (tokens: Uint32Array) => sequence.settle(outputText.logProbabilities(queue, state, tokens), start);
    try {
      const candidates = this.#matcher ? MAX_CANDIDATES : this.#chooser.candidates;
      const [distribution, also, mask] = await Promise.all([
        sequence.settle(outputText.nextDistribution(queue, state, candidates), start),
        this.#askedTokens.length > 0 ? ask(this.#askedTokens) : [],
        this.#matcher && settle(this.#matcher.mask()),
      ]);
      let candidateRows = merge(distribution, this.#askedTokens, also);
      if (mask) candidateRows = await this.#allowed(candidateRows, mask, ask);
      const token = this.#chooser.choose(candidateRows, sequence);
      if (this.#withLogProbs) {
        const at = Array.prototype.indexOf.call(candidateRows.tokens, token);
        const known = at < 0 ? undefined : candidateRows.logProbabilities[at];
        this.logProbabilities = known === undefined ? await ask(Uint32Array.of(token)) : [known];
      }
      return [token];
    } finally {
      allocate.freeEmbeds(queue, embeds);
    }
  }

  stop(): void {}

  /** The most probable allowed tokens, and the allowed ones that the sampler asked for. */
  async #allowed(
    { tokens, logProbabilities }: Distribution,
    mask: ArrayLike<number>,
    ask: (tokens: Uint32Array) => Promise<readonly number[]>,
  ): Promise<Distribution> {
    const { candidates } = this.#chooser;
    const allows = (token: number) => (((mask[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
    const allowedIds = idsOf(mask, this.#sequence.model.vocabularySize);
    const fitting = cut({ tokens, logProbabilities }, (token) => allows(token));
    // The device lists the most probable tokens. When too few of them are allowed, ask for all allowed ones.
    const enough = fitting.tokens.length >= Math.min(candidates + this.#askedTokens.length, allowedIds.length);
    const seen = enough ? fitting : merge({ tokens: [], logProbabilities: [] }, allowedIds, await ask(allowedIds));
    const also = new Set(this.#askedTokens);
    return cut(seen, (token, i) => i < candidates || also.has(token));
  }
}

function cut({ tokens, logProbabilities }: Distribution, keeps: (token: number, i: number) => boolean): Distribution {
  const kept = Array.from(tokens).flatMap((token, i) => (keeps(token, i) ? [i] : []));
  return {
    tokens: kept.map((i) => tokens[i] as number),
    logProbabilities: kept.map((i) => logProbabilities[i] as number),
  };
}

/** Number of candidates to request under a mask, which may forbid most of the probable tokens. */
const MAX_CANDIDATES = 256;

/** The ids of the tokens whose bits are set. `rest & -rest` is the lowest set bit, and `rest & (rest - 1)` clears it. */
function idsOf(mask: ArrayLike<number>, vocabularySize: number): Uint32Array {
  const ids: number[] = [];
  for (let word = 0; word < mask.length; word++) {
    for (let rest = mask[word] as number; rest !== 0; rest &= rest - 1)
      ids.push(32 * word + 31 - Math.clz32(rest & -rest));
  }
  return Uint32Array.from(ids.filter((id) => id < vocabularySize));
}

/** Adds tokens to a distribution, most probable first. */
function merge(distribution: Distribution, more: Uint32Array, logProbabilities: readonly number[]): Distribution {
  if (more.length === 0) return distribution;
  if (logProbabilities.length !== more.length)
    throw new InferletError('internal', 'The device left probabilities out.');
  const rows = new Map<number, number>();
  for (const [i, token] of Array.from(distribution.tokens).entries()) {
    rows.set(token, distribution.logProbabilities[i] as number);
  }
  for (const [i, token] of more.entries()) if (!rows.has(token)) rows.set(token, logProbabilities[i] as number);
  const sorted = [...rows].sort(([a, p], [b, q]) => q - p || a - b);
  return { tokens: sorted.map(([token]) => token), logProbabilities: sorted.map(([, value]) => value) };
}

/** Asks a guest sampler for the tokens of one generation, one after the other. */
export class Chooser {
  readonly candidates: number;
  readonly #sampler: Pick<GuestSampler, 'choose'>;
  readonly #seed: number;
  #generated = 0;

  constructor(sampler: Pick<GuestSampler, 'candidates' | 'choose'>, seed: number) {
    this.candidates = sampler.candidates;
    this.#sampler = sampler;
    this.#seed = seed;
  }

  /** Counts tokens of the generation that the sampler did not choose. */
  skip(tokens: number): void {
    this.#generated += tokens;
  }

  /** Chooses the token that follows the sequence and `ahead`, the chosen tokens that the sequence does not hold yet. */
  choose(distribution: Distribution, sequence: Sequence, ahead: readonly number[] = []): number {
    const { length, compactions, model } = sequence;
    const tokens = ahead.length === 0 ? sequence.tokens : [...sequence.tokens, ...ahead];
    // As on the device, a draw depends on the position of the last input. A compaction reuses positions, so it must change the seed.
    const lastPosition = length + ahead.length - 1;
    const random = drawOf(reseed(this.#seed, compactions), lastPosition);
    const token = this.#sampler.choose(distribution, { tokens, random, generated: this.#generated++ });
    if (Number.isInteger(token) && token >= 0 && token < model.vocabularySize) return token;
    throw new InferletError('invalid-argument', `The sampler chose ${token}, which is not a token id.`);
  }
}
