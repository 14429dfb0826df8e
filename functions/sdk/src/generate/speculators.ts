import { type Context, sequenceOf } from '../context/context.ts';
import type { Sequence } from '../context/sequence.ts';
import { checkCount, InferletError } from '../errors.ts';
import { type Decoder, decoderFor } from './decoders.ts';
import type { Sampler } from './samplers.ts';
import type { Proposal, Speculation, Speculator } from './speculation.ts';

/**
 * Finds an earlier occurrence of the last few tokens and guesses that the same tokens follow again (Saxena, Prompt Lookup Decoding, 2023).
 * Suits texts that repeat themselves or their prompt, such as summaries, edits and code.
 * @param options.longest maximum number of last tokens to match (3, or `shortest` if that is larger, by default)
 * @param options.shortest shorter matches are tried down to this number (1 by default)
 * @param options.tokens number of guessed tokens (8 by default)
 */
export function ngram(
  options: { readonly tokens?: number; readonly longest?: number; readonly shortest?: number } = {},
): Speculator {
  const { tokens: count = 8, shortest = 1, longest = Math.max(3, shortest) } = options;
  checkCount('tokens', count);
  checkCount('shortest', shortest);
  checkCount('longest', longest, shortest);
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
 * Guesses the tokens of a cheaper draft model (Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023). The
 * draft model draws with the same seed at the same position, so the two models agree as often as their distributions allow. `context`
 * belongs to the draft model, which must have the same vocabulary. The speculator makes `context` follow the text; the caller releases it.
 * @param options.tokens number of guessed tokens (4 by default)
 */
export function draft(context: Context, options: { readonly tokens?: number } = {}): Speculator {
  const { tokens: count = 4 } = options;
  checkCount('tokens', count);
  return {
    begin({ sampler, seed, vocabularySize, stopTokens }) {
      const sequence = sequenceOf(context);
      const { name, vocabularySize: size } = sequence.model;
      if (size !== vocabularySize) {
        throw new InferletError(
          'invalid-argument',
          `${name} has ${size} tokens in its vocabulary, but the model that it drafts for has ${vocabularySize}.`,
        );
      }
      // A guest sampler applies to verification only; draft tokens are then greedy.
      return new Drafting(sequence, sampler.kind === 'device' ? sampler : GREEDY, seed, stopTokens, count);
    },
  };
}

/** The last proposal of each draft context. The next proposal waits for it, even if it belongs to another generation. */
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
    const previous = proposals.get(this.#sequence);
    const proposal = (previous ?? Promise.resolve()).then(() => this.#propose(tokens, most));
    proposals.set(
      this.#sequence,
      proposal.catch(() => undefined),
    );
    return proposal;
  };

  /** Ends the speculation. The draft context is then free for other use. */
  stop(): void {
    this.#stopped = true;
    this.#decoder?.stop(true);
    this.#decoder = undefined;
  }

  async #propose(tokens: readonly number[], most: number): Promise<readonly number[]> {
    const sequence = this.#sequence;
    const wanted = Math.min(this.#count, most, sequence.model.contextLength - tokens.length);
    // Propose nothing when the draft model's context has no room for the text.
    if (this.#stopped || wanted < 1) return [];
    sequence.replace(tokens);
    const decoder = decoderFor(sequence, this.#sampler, undefined, this.#seed, () => this.#stopTokens);
    this.#decoder = decoder;
    const drafted: number[] = [];
    try {
      while (drafted.length < wanted && !this.#stopTokens.includes(drafted.at(-1) ?? -1)) {
        const next = await decoder.next(wanted - drafted.length);
        // After a stop, the context no longer belongs to this generation.
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
 * Guesses a block of tokens and lets the model correct the whole block in each pass until it no longer changes (Santilli et al.,
 * Accelerating Transformer Inference for Translation via Parallel Decoding, ACL 2023). A guess is, if possible, the token that the model
 * chose in an earlier block after the same two tokens, or else after the same last token (Fu et al., Break the Sequential Dependency of LLM
 * Inference Using Lookahead Decoding, ICML 2024). Needs neither another model nor a text that repeats itself.
 * @param options.tokens size of the block (16 by default)
 */
export function jacobi(options: { readonly tokens?: number } = {}): Speculator {
  const { tokens: count = 16 } = options;
  checkCount('tokens', count);
  return {
    begin() {
      const chosenAfter = new Map<string, number>();
      let corrected: readonly number[] = [];
      /** The last two tokens of the text (−1 for one that it lacks), and the block after them. */
      let line: number[] = [];
      return {
        propose(tokens, most) {
          line = [tokens.at(-2) ?? -1, tokens.at(-1) ?? -1];
          for (let i = 0; i < Math.min(count, most); i++) {
            const last = line[i + 1] as number;
            line.push(chosenAfter.get(`${line[i]} ${last}`) ?? chosenAfter.get(`${last}`) ?? corrected[i] ?? last);
          }
          return line.slice(2);
        },
        verified(choices, accepted) {
          for (const [i, choice] of choices.entries()) {
            for (const before of [`${line[i]} ${line[i + 1]}`, `${line[i + 1]}`]) {
              // Tokens that follow accepted text replace tokens that followed a wrong guess.
              if (i <= accepted || !chosenAfter.has(before)) chosenAfter.set(before, choice);
            }
          }
          corrected = choices.slice(accepted + 1);
        },
      };
    },
  };
}

const GREEDY: Sampler = { kind: 'device', temperature: 0, topK: 0, topP: 1, minP: 0, seed: undefined };

/** Index of the most recent earlier occurrence of the last `size` tokens; −1 if there is none. */
function lastOccurrence(tokens: readonly number[], size: number): number {
  const end = tokens.length - size;
  for (let at = end - 1; at >= 0; at--) {
    let same = 0;
    while (same < size && tokens[at + same] === tokens[end + same]) same++;
    if (same === size) return at;
  }
  return -1;
}
