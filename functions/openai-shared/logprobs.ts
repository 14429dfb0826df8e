import { type Context, detokenize, map, tokenize } from '@pie/inferlet';
import {
  allocate,
  attempt,
  Detokenizer,
  forward,
  inputText,
  outputText,
  Queue,
  settle,
  tokenize as tokenizer,
} from '@pie/inferlet/raw';
import { type TokenLog, tokenLog } from './sampling.ts';

/** One token in the form of the APIs. */
export interface ShownToken {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

/** The texts of a model's tokens. */
export class TokenTexts {
  readonly #model: string;
  readonly #anchor: readonly number[];
  readonly #anchorLength: number;
  #vocabulary: readonly ArrayLike<number>[] | undefined;

  constructor(model: string) {
    this.#model = model;
    // Decode a token after an anchor, because some tokenizers drop the space of a text's first token.
    this.#anchor = tokenize('a', { model });
    this.#anchorLength = detokenize(this.#anchor, { model }).length;
  }

  /** A token's text; an incomplete character gives U+FFFD. */
  text(token: number): string {
    return detokenize([...this.#anchor, token], { model: this.#model, special: true }).slice(this.#anchorLength);
  }

  bytes(token: number): number[] {
    const text = this.text(token);
    if (!text.includes('\ufffd')) return Array.from(new TextEncoder().encode(text));
    this.#vocabulary ??= attempt(() => tokenizer.vocabulary(this.#model));
    return Array.from(this.#vocabulary[token] ?? []);
  }

  show(token: number, logprob: number): ShownToken {
    return { token: this.text(token), logprob, bytes: this.bytes(token) };
  }
}

/** `logprobs.content` of the chat and responses APIs. */
export const chatLogprobs = (texts: TokenTexts, logs: readonly TokenLog[]) =>
  logs.map(({ token, logprob, top }) => ({
    ...texts.show(token, logprob),
    top_logprobs: top.map((other) => texts.show(other.token, other.logprob)),
  }));

/** A log entry of a prompt's token. The first token has no predecessor, so its probability is null. */
export type PromptLog = (TokenLog | { readonly token: number; readonly logprob: null; readonly top: null }) & Place;

/** `logprobs` of the completions API. */
export function completionLogprobs(texts: TokenTexts, logs: readonly PromptLog[]) {
  return {
    // Prefer the text that the token adds: at the beginning of a text, tokenizers may drop a token's leading space.
    tokens: logs.map(({ token, adds }) => (adds !== '' && texts.text(token).endsWith(adds) ? adds : texts.text(token))),
    token_logprobs: logs.map(({ logprob }) => logprob),
    top_logprobs: logs.map(({ top }) => top && byText(texts, top)),
    text_offset: logs.map(({ at }) => at),
  };
}

/** The log-probability of each text. Several tokens may have one text (parts of characters): their first one in `top`, the most probable, counts. */
function byText(texts: TokenTexts, top: TokenLog['top']): Readonly<Record<string, number>> {
  const found = new Map<string, number>();
  for (const { token, logprob } of top) {
    const text = texts.text(token);
    if (!found.has(text)) found.set(text, logprob);
  }
  return Object.fromEntries(found);
}

/** Most states computed in one call. States are embeds, which count against the inferlet's memory. */
const ROWS_PER_CALL = 64;
/** Concurrent calls for one prompt: the device computes one while the inferlet takes the values of another. */
const CONCURRENT_CALLS = 2;

/** The log-probability of each of a context's tokens given those before it (teacher forcing). */
export async function promptLogs({ model, tokens }: Context, topLogprobs: number): Promise<PromptLog[]> {
  using places = new Places(model.name);
  const [first, ...rest] = tokens.map((token) => ({ token, ...places.next(token) }));
  if (!first) return [];
  using queue = new Queue(model.name);
  const pages = attempt(() => allocate.allocatePages(queue, Math.ceil(tokens.length / model.pageSize)));
  const starts = Array.from({ length: Math.ceil(rest.length / ROWS_PER_CALL) }, (_, i) => i * ROWS_PER_CALL);
  const score = async (start: number): Promise<PromptLog[]> => {
    const scored = rest.slice(start, start + ROWS_PER_CALL);
    const inputs = tokens.slice(start, start + scored.length);
    const embeds = attempt(() => allocate.allocateEmbeds(queue, inputs.length * 2));
    const [embedded, states] = [embeds.slice(0, inputs.length), embeds.slice(inputs.length)];
    const positions = Uint32Array.from(inputs, (_, i) => start + i);
    inputText.embedText(queue, Uint32Array.from(inputs), positions, embedded);
    forward.forward(queue, pages, embedded, pages, states, undefined);
    const logs = await Promise.all(
      scored.map(async ({ token, ...place }, i) => ({
        ...(await logAfter(queue, states[i] as number, token, topLogprobs)),
        ...place,
      })),
    );
    allocate.freeEmbeds(queue, embeds);
    return logs;
  };
  const logs = await map(starts, score, { concurrency: CONCURRENT_CALLS });
  allocate.freePages(queue, pages);
  return [{ ...first, logprob: null, top: null }, ...logs.flat()];
}

/** The log entry of a token after a state. Prefers the value in the list of the best tokens: a device may round differently in two calls. */
async function logAfter(queue: Queue, state: number, token: number, topLogprobs: number): Promise<TokenLog> {
  const best = topLogprobs > 0 ? await settle(outputText.nextDistribution(queue, state, topLogprobs)) : NONE;
  const log = tokenLog(best, token, topLogprobs);
  if (log.top.some((other) => other.token === token)) return log;
  const [logprob = 0] = await settle(outputText.logProbabilities(queue, state, Uint32Array.of(token)));
  return { ...log, logprob };
}

const NONE = { tokens: [], logProbabilities: [] };

/** The place of a token's text within a longer text. */
export interface Place {
  /** Number of characters before the token. */
  readonly at: number;
  /** Text that the token adds; empty for a part of a character that a later token completes. */
  readonly adds: string;
}

/** Computes the places of consecutive tokens in their text. */
export class Places implements Disposable {
  readonly #detokenizer: Detokenizer;
  #length = 0;

  /** @param before tokens that the text continues; without them, tokenizers may drop the first space */
  constructor(model: string, before: readonly number[] = []) {
    this.#detokenizer = new Detokenizer(model);
    // The parts of an image have no ids.
    attempt(() => this.#detokenizer.push(before.slice(-PRIMING_TOKENS).filter((token) => token >= 0)));
  }

  next(token: number): Place {
    const at = this.#length;
    const adds = attempt(() => this.#detokenizer.push([token]));
    this.#length += adds.length;
    return { at, adds };
  }

  [Symbol.dispose](): void {
    this.#detokenizer.drop();
  }
}

/** Tokens to decode before the first one: more than the bytes of the longest character, each of which may take a token. */
const PRIMING_TOKENS = 8;
