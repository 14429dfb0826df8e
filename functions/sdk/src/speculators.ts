import { type Context, sequenceOf } from './context.ts';
import { type Decoder, decoderFor } from './decoders.ts';
import { InferletError } from './errors.ts';
import type { Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';
import type { Proposal, Speculation, Speculator } from './speculation.ts';

/**
 * Guesses that what followed the last few tokens before will follow again (Saxena, Prompt Lookup Decoding, 2023): for texts that repeat
 * themselves or their prompt, such as summaries, edits and code.
 * @param options.longest how many last tokens must be the same, at most; fewer are tried too, down to `shortest` (3 and 1 by default)
 * @param options.tokens how many tokens are guessed (8 by default)
 */
export function ngram(
  options: { readonly tokens?: number; readonly longest?: number; readonly shortest?: number } = {},
): Speculator {
  const { tokens: count = 8, longest = 3, shortest = 1 } = options;
  checkCount('tokens', count);
  checkCount('shortest', shortest);
  checkCount('longest', longest);
  const propose: Proposal = (tokens, most) => {
    for (let size = Math.min(longest, tokens.length - 1); size >= shortest; size--) {
      const at = lastOccurrence(tokens, size);
      if (at >= 0) return tokens.slice(at + size, at + size + Math.min(count, most));
    }
    return [];
  };
  return { begin: () => ({ propose }) };
}

/**
 * Guesses what another, cheaper model says (Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023). It draws with
 * the same seed at the same position, so the two agree as often as their distributions let them. `context` is one of that model, which must
 * have the same vocabulary; it is made to follow the text, and is yours to release.
 * @param options.tokens how many tokens are guessed (4 by default)
 */
export function draft(context: Context, options: { readonly tokens?: number } = {}): Speculator {
  const { tokens: count = 4 } = options;
  checkCount('tokens', count);
  return {
    begin({ sampler, seed, vocabularySize, stopTokens }) {
      const sequence = sequenceOf(context);
      if (sequence.model.vocabularySize !== vocabularySize) {
        throw new InferletError(
          'invalid-argument',
          `${sequence.model.name} has a vocabulary of ${sequence.model.vocabularySize} tokens, the model that it drafts for one of ${vocabularySize}.`,
        );
      }
      // A sampler of the inferlet's has a say in what is verified, not in what is guessed.
      return new Drafting(sequence, sampler.kind === 'device' ? sampler : GREEDY, seed, stopTokens, count);
    },
  };
}

/** The last proposal of each draft context: the next waits for it, whatever generation it is for. */
const proposals = new WeakMap<Sequence, Promise<unknown>>();

/** One generation's guesses from a draft model. */
class Drafting implements Speculation {
  readonly #sequence: Sequence;
  readonly #sampler: Sampler;
  readonly #seed: number;
  readonly #stopTokens: readonly number[];
  readonly #count: number;
  #decoder: Decoder | undefined;
  #stopped = false;

  constructor(sequence: Sequence, sampler: Sampler, seed: number, stopTokens: readonly number[], count: number) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = seed;
    this.#stopTokens = stopTokens;
    this.#count = count;
  }

  readonly propose: Proposal = (tokens, most) => {
    const before = proposals.get(this.#sequence);
    const mine = (before ?? Promise.resolve()).then(() => this.#propose(tokens, most));
    proposals.set(
      this.#sequence,
      mine.catch(() => undefined),
    );
    return mine;
  };

  /** The context holds what was taken from it so far, and can be used for something else at once. */
  stop(): void {
    this.#stopped = true;
    this.#decoder?.stop(true);
    this.#decoder = undefined;
  }

  async #propose(tokens: readonly number[], most: number): Promise<readonly number[]> {
    const sequence = this.#sequence;
    const wanted = Math.min(this.#count, most, sequence.model.contextLength - tokens.length);
    // A text that its context has no room for it says nothing of.
    if (this.#stopped || wanted < 1) return [];
    sequence.replace(tokens);
    const decoder = decoderFor(sequence, this.#sampler, undefined, this.#seed, this.#stopTokens);
    this.#decoder = decoder;
    const drafted: number[] = [];
    try {
      while (drafted.length < wanted && !this.#stopTokens.includes(drafted.at(-1) ?? -1)) {
        const next = await decoder.next(wanted - drafted.length);
        // After a stop nothing here is this generation's any more.
        if (this.#decoder !== decoder) return [];
        if (next.length === 0) break;
        sequence.accept(next);
        drafted.push(...next);
      }
      return drafted;
    } finally {
      if (this.#decoder === decoder) {
        decoder.stop(true);
        this.#decoder = undefined;
      }
    }
  }
}

/**
 * Guesses a block of tokens and lets the model correct all of it at once, over and over, until it stays the same (Santilli et al., Accelerating
 * Transformer Inference for Translation via Parallel Decoding, ACL 2023). What the model said after two tokens, or one, in an earlier block is
 * the first guess for what follows them now (Fu et al., Break the Sequential Dependency of LLM Inference Using Lookahead Decoding, ICML 2024).
 * Needs no other model and no repetition.
 * @param options.tokens size of the block (16 by default)
 */
export function jacobi(options: { readonly tokens?: number } = {}): Speculator {
  const { tokens: count = 16 } = options;
  checkCount('tokens', count);
  return {
    begin() {
      const said = new Map<string, number>();
      let corrected: readonly number[] = [];
      /** The last two tokens of the text, and the block behind them. */
      let line: number[] = [];
      return {
        propose(tokens, most) {
          line = [tokens.at(-2) ?? -1, tokens.at(-1) ?? -1];
          for (let i = 0; i < Math.min(count, most); i++) {
            const last = line[i + 1] as number;
            line.push(said.get(`${line[i]} ${last}`) ?? said.get(`${last}`) ?? corrected[i] ?? last);
          }
          return line.slice(2);
        },
        verified(choices, accepted) {
          for (const [i, choice] of choices.entries()) {
            for (const before of [`${line[i]} ${line[i + 1]}`, `${line[i + 1]}`]) {
              // What it said of a wrong guess gives way to what it said of the text.
              if (i <= accepted || !said.has(before)) said.set(before, choice);
            }
          }
          corrected = choices.slice(accepted + 1);
        },
      };
    },
  };
}

const GREEDY: Sampler = { kind: 'device', temperature: 0, topK: 0, topP: 1, minP: 0, seed: undefined };

/** Where the last `size` tokens occurred last before; −1 when they did not. */
function lastOccurrence(tokens: readonly number[], size: number): number {
  const end = tokens.length - size;
  for (let at = end - 1; at >= 0; at--) {
    let same = 0;
    while (same < size && tokens[at + same] === tokens[end + same]) same++;
    if (same === size) return at;
  }
  return -1;
}

function checkCount(name: string, value: number): void {
  if (Number.isInteger(value) && value >= 1) return;
  throw new InferletError('invalid-argument', `${name} must be a whole number, 1 or more, not ${value}.`);
}
