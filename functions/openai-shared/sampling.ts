import {
  type Distribution,
  frequencyPenalty,
  type GuestSampler,
  logitBias,
  type ModelInfo,
  type Processor,
  presencePenalty,
  processors,
  type Sampler,
  sampler,
  script,
  tokenizeContinuation,
} from '@pie/inferlet';
import { RequestError } from './request.ts';

/** Sampling parameters of all three APIs, with `top_k` and `min_p` beyond OpenAI's. */
export interface SamplingInput {
  readonly temperature?: number;
  readonly top_p?: number;
  readonly top_k?: number;
  readonly min_p?: number;
  readonly seed?: number;
  readonly frequency_penalty?: number;
  readonly presence_penalty?: number;
  readonly logit_bias?: Readonly<Record<string, number>>;
  /** Forces the model's replies, one per generation (teacher forcing). */
  readonly script?: readonly string[];
}

/** A sampled token with its natural log-probability, and the log-probabilities of the most probable alternatives. */
export interface TokenLog {
  readonly token: number;
  readonly logprob: number;
  readonly top: readonly { readonly token: number; readonly logprob: number }[];
}

/** The value that OpenAI's API gives for tokens too improbable to report. */
const VERY_UNLIKELY = -9999;
/** Smallest `top_p` of the device: keeps the most probable token alone, as OpenAI's 0 does. Smaller values may be 0 in 32 bits. */
const LEAST_TOP_P = 2 ** -126;
/** 2³² divided by the golden ratio: the distance between the seeds of successive choices. */
const SEED_STEP = 0x9e3779b9;
/** Most candidates that a device returns. */
const CANDIDATES = 256;

/**
 * The sampler of one generation; a `reply` forces the text, in which special tokens are parsed if `special` is true. The platform samples, unless
 * log-probabilities need the distributions. `logs`, if given, gets an entry for each chosen token, a final stop token included.
 */
export function samplerOf(
  input: SamplingInput,
  {
    choice,
    reply,
    special = false,
  }: { readonly choice: number; readonly reply: string | undefined; readonly special?: boolean | undefined },
  logs: TokenLog[] | undefined,
  topLogprobs: number,
): Sampler {
  const { temperature, top_p = 1, top_k: topK, min_p: minP, frequency_penalty, presence_penalty, logit_bias } = input;
  // Each choice has its own draws. The first choice draws like a request for a single choice.
  const seed = input.seed === undefined ? undefined : (input.seed + Math.imul(choice, SEED_STEP)) >>> 0;
  const options = { temperature, topP: Math.max(top_p, LEAST_TOP_P), topK, minP, seed };
  const chain: Processor[] = [
    ...(logit_bias ? [logitBias(logit_bias)] : []),
    ...(frequency_penalty ? [frequencyPenalty(frequency_penalty)] : []),
    ...(presence_penalty ? [presencePenalty(presence_penalty)] : []),
  ];
  if (reply === undefined && chain.length === 0 && !logs) return sampler(options);
  const inner = reply === undefined ? processors(chain, options) : special ? specialScript(reply) : script(reply);
  const candidates = temperature === 0 && chain.length === 0 ? Math.max(1, topLogprobs) : CANDIDATES;
  return {
    ...inner,
    candidates,
    begin(model) {
      for (const id of Object.keys(logit_bias ?? {})) checkToken(id, model);
      const begun = inner.begin?.(model) ?? inner;
      // Forced tokens may be improbable, so ask for them explicitly.
      const forcedTokens = reply !== undefined && logs ? tokenizeContinuation(reply, { model: model.name }) : [];
      const also = [...new Set([...(begun.also ?? []), ...forcedTokens])];
      const askingSampler = { ...begun, candidates, also };
      return logs ? { ...askingSampler, choose: recording(begun, logs, topLogprobs) } : askingSampler;
    },
  };
}

/** A script in which special tokens are parsed. */
const specialScript = (reply: string): GuestSampler => ({
  ...script(reply),
  begin: (model) => {
    const parsed = script(tokenizeContinuation(reply, { model: model.name, special: true }));
    return parsed.begin?.(model) ?? parsed;
  },
});

function recording({ choose }: GuestSampler, logs: TokenLog[], topLogprobs: number): GuestSampler['choose'] {
  return (distribution, state) => {
    const token = choose(distribution, state);
    logs.push(tokenLog(distribution, token, topLogprobs));
    return token;
  };
}

/** The log entry of a token in a distribution. */
export function tokenLog({ tokens, logProbabilities }: Distribution, token: number, topLogprobs: number): TokenLog {
  const at = Array.prototype.indexOf.call(tokens, token);
  const top = Array.from({ length: Math.min(topLogprobs, tokens.length) }, (_, i) => ({
    token: tokens[i] as number,
    logprob: finite(logProbabilities[i]),
  }));
  return { token, logprob: finite(logProbabilities[at]), top };
}

const finite = (logprob: number | undefined): number => Math.max(VERY_UNLIKELY, logprob ?? VERY_UNLIKELY);

function checkToken(id: string, { name, vocabularySize }: ModelInfo): void {
  const token = Number(id);
  if (Number.isInteger(token) && token >= 0 && token < vocabularySize) return;
  const text = `"${id}" is not a token id of ${name}, whose ids are 0 to ${vocabularySize - 1}.`;
  throw new RequestError(text, `logit_bias.${id}`);
}
