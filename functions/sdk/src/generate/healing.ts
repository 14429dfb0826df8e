import type { PipeRequest } from 'pie:inferlet/fused@0.1.0';
import { NO_TOKEN, type Sequence, withIds } from '../context/sequence.ts';
import { attempt, Detokenizer, tokenize } from '../raw.ts';
import { type Decoder, scoringDecoder } from './decoders.ts';
import { type Distribution, draw, type Sampler } from './samplers.ts';

/** Tokens before the last one that the detokenizer needs to write it as a part of the text. */
const PRIMING_TOKENS = 8;

/** The last token of a prompt, which was taken back, and the tokens that may replace it. */
export interface Healing {
  readonly removed: number;
  /** The removed token's text, with which the generated text begins. */
  readonly text: string;
  /** The tokens whose bytes begin with those of the removed token, itself included. */
  readonly tokens: readonly number[];
}

/**
 * Takes back the last token of a prompt if longer tokens begin with its text. A tokenizer would perhaps have merged this token with the text that
 * follows, so the model has rarely seen it before such a text (token healing: Lundberg and others, Guidance, 2023). Returns undefined and leaves
 * the sequence unchanged when no other token fits, when the token ends within a character, and when it is the first or directly follows an image.
 */
export function heal(sequence: Sequence): Healing | undefined {
  const { name } = sequence.model;
  const [before = NO_TOKEN, removed = NO_TOKEN] = sequence.tokens.slice(-2);
  // Choosing the first token needs the state of the token before it, and the last part of an image cannot be computed again.
  if (before === NO_TOKEN || removed === NO_TOKEN) return undefined;
  const detokenizer = new Detokenizer(name);
  try {
    attempt(() => detokenizer.push(withIds(sequence.tokens.slice(-1 - PRIMING_TOKENS, -1))));
    const text = attempt(() => detokenizer.push([removed]));
    if (text === '' || detokenizer.finish() !== '') return undefined;
    const tokens = successors(name, removed);
    if (tokens.length < 2) return undefined;
    sequence.truncate(sequence.length - 1);
    return { removed, text, tokens };
  } finally {
    detokenizer.drop();
  }
}

/** Known lists of {@link successors}, because making a list reads the whole vocabulary. */
const successorLists = new Map<string, readonly number[]>();
const MAX_LISTS = 16;

/** The tokens whose bytes begin with those of a token, itself included; none for a special token. */
function successors(name: string, token: number): readonly number[] {
  const key = `${token} ${name}`;
  const cached = successorLists.get(key);
  if (cached) return cached;
  const vocabulary = attempt(() => tokenize.vocabulary(name));
  const found = withText(extensions(vocabulary, vocabulary[token] ?? []), name);
  if (successorLists.size >= MAX_LISTS) successorLists.clear();
  successorLists.set(key, found);
  return found;
}

/** Leaves out special tokens, which have no text. In the common case there are none, and two calls for the whole list show this. */
function withText(tokens: readonly number[], name: string): readonly number[] {
  const write = (some: readonly number[], special: boolean) => attempt(() => tokenize.detokenize(name, some, special));
  if (write(tokens, false) === write(tokens, true)) return tokens;
  return tokens.filter((token) => write([token], false) === write([token], true));
}

function extensions(vocabulary: readonly ArrayLike<number>[], prefix: ArrayLike<number>): number[] {
  const found: number[] = [];
  for (const [token, bytes] of vocabulary.entries()) {
    let shared = 0;
    while (shared < prefix.length && bytes[shared] === prefix[shared]) shared++;
    if (shared === prefix.length) found.push(token);
  }
  return found;
}

/** Chooses the first token among those of a healing, and leaves the others to another decoder (`rest`). */
export class HealingDecoder implements Decoder {
  readonly #first: Decoder;
  readonly #rest: Decoder;
  /** The decoder of the last tokens. */
  #decoder: Decoder | undefined;

  constructor(
    sequence: Sequence,
    sampler: Sampler,
    seed: number,
    healing: Healing,
    rest: Decoder,
    withLogProbs: boolean,
  ) {
    const allowed = new Set(healing.tokens);
    const restrict = ({ tokens, logProbabilities }: Distribution): Distribution => {
      const kept = Array.from(tokens).flatMap((token, i) => (allowed.has(token) ? [i] : []));
      return {
        tokens: kept.map((i) => tokens[i] as number),
        logProbabilities: kept.map((i) => logProbabilities[i] as number),
      };
    };
    this.#first = scoringDecoder(
      sequence,
      {
        kind: 'guest',
        candidates: 1,
        also: healing.tokens,
        seed: sampler.seed,
        choose: (distribution, state) =>
          sampler.kind === 'guest'
            ? sampler.choose(restrict(distribution), state)
            : draw(restrict(distribution), sampler, state.random),
      },
      seed,
      withLogProbs,
    );
    this.#rest = rest;
  }

  get piped(): string {
    return this.#decoder?.piped ?? '';
  }

  get late(): boolean {
    return this.#decoder?.late ?? false;
  }

  get logProbabilities(): readonly number[] | undefined {
    return this.#decoder?.logProbabilities;
  }

  next(left: number, pipe?: PipeRequest): Promise<readonly number[]> {
    // The first token is a part of the generation, so processors and samplers of the other decoder must count it.
    if (this.#decoder === this.#first) this.#rest.skip?.(1);
    this.#decoder = this.#decoder === undefined ? this.#first : this.#rest;
    return this.#decoder.next(left, pipe);
  }

  halt(): void {
    this.#decoder?.halt?.();
  }

  stop(rollBack: boolean): void {
    this.#first.stop(rollBack);
    this.#rest.stop(rollBack);
  }
}
