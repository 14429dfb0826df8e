import { type ModelInfo, specialTokens, tokenizeContinuation } from '../context/models.ts';
import { check, checkCount, InferletError } from '../errors.ts';
import { penalties } from '../raw.ts';
import {
  custom,
  type DeviceSampler,
  draw,
  type GuestSampler,
  greedy,
  type RunSampler,
  type Sampler,
  type SamplerOptions,
  type SamplingState,
  sampler,
} from './samplers.ts';

/** The candidates for the next token, as two parallel lists. */
export interface Candidates {
  readonly tokens: ArrayLike<number>;
  /** Natural logarithms of the probabilities, to be changed in place. They need not be normalised; `-Infinity` rules a token out. */
  readonly logProbabilities: number[];
}

/** The state that a processor may read. */
export interface ProcessorState extends SamplingState {
  readonly model: ModelInfo;
}

/** Changes the probabilities of the candidates for the next token. */
export interface Processor {
  (candidates: Candidates, state: ProcessorState): void;
  /** Token ids that must be among the candidates. */
  readonly tokens?: readonly number[];
  /** @internal The same change as data. The host can apply it, so the inferlet need not see every token. */
  readonly change?: Change;
}

/** Additions to the logits of single tokens, which depend only on the tokens that the generation has chosen. */
interface Change {
  readonly frequency?: number;
  readonly presence?: number;
  readonly biases?: ReadonlyMap<number, number>;
}

/** Maximum number of biases of a run. With more, the inferlet applies the chain. */
const MAX_BIASES = 1024;
/** Maximum of a bias or a penalty of a run. With a larger one, the inferlet applies the chain. */
const MAX_MAGNITUDE = 1e6;

/**
 * A sampler that lets processors change the distribution, one after the other, and then draws as {@link draw} does (`temperature` 1 by
 * default). It sees the model's `candidates` most probable tokens, 256 by default, and the tokens that a processor asks for. The platform
 * itself applies a chain of {@link frequencyPenalty}, {@link presencePenalty}, {@link banTokens} and {@link logitBias} to the whole vocabulary, and
 * decodes ahead of the inferlet. With other processors, decoding waits for the inferlet at every token.
 *
 * @example
 * const sampler = processors([repetitionDivisor(1.2), banTokens([13]), minTokens(20)], { temperature: 0.8, topP: 0.9 });
 */
export function processors(
  chain: readonly Processor[],
  options: SamplerOptions & { readonly candidates?: number } = {},
): GuestSampler {
  const { candidates, seed } = options;
  // Validate the options now rather than at the first token.
  const device = sampler(options);
  const also = [...new Set(chain.flatMap(({ tokens = [] }) => tokens))];
  const begin = (model: ModelInfo): GuestSampler => {
    const chainSampler = custom(
      ({ tokens, logProbabilities }, state) => {
        const changed = { tokens, logProbabilities: Array.from(logProbabilities) };
        const processorState = { ...state, model };
        for (const process of chain) process(changed, processorState);
        return draw(ordered(changed), options, state.random);
      },
      { candidates, seed },
    );
    return { ...chainSampler, also, ahead: runSampler(chain, device, chainSampler.choose, model) };
  };
  const choose = () => {
    throw new InferletError('invalid-argument', 'Processors work only as the sampler of generate().');
  };
  return { ...custom(choose, { candidates, seed }), begin };
}

/** A chain as the host runs it; undefined when one of its processors has to see the tokens. */
function runSampler(
  chain: readonly Processor[],
  device: DeviceSampler,
  choose: GuestSampler['choose'],
  { vocabularySize }: ModelInfo,
): RunSampler | undefined {
  if (!chain.every(({ change }) => change)) return undefined;
  const biases = new Map<number, number>();
  let [frequency, presence] = [0, 0];
  for (const { change = {} } of chain) {
    frequency += change.frequency ?? 0;
    presence += change.presence ?? 0;
    // Ids outside the vocabulary have no effect.
    for (const [token, value] of change.biases ?? [])
      if (Number.isInteger(token) && token >= 0 && token < vocabularySize)
        biases.set(token, (biases.get(token) ?? 0) + value);
  }
  const fits = (value: number) => Math.abs(value) <= MAX_MAGNITUDE || value === Number.NEGATIVE_INFINITY;
  if (biases.size > MAX_BIASES || ![...biases.values()].every(fits)) return undefined;
  // The smallest values of `topP` become 0 as an f32, which the host refuses.
  if (!fits(frequency) || !fits(presence) || (device.topP > 0 && Math.fround(device.topP) === 0)) return undefined;
  const changes = { frequency, presence, biasTokens: [...biases.keys()], biasValues: [...biases.values()] };
  return {
    choose,
    sampler: device,
    start: (queue, request, chosen) => penalties.startRun(queue, request, { ...changes, chosen }),
  };
}

/**
 * Divides the probability of each token in the context, or among its `last` tokens, by `penalty` (above 1 makes them rarer), then
 * normalises the probabilities. CTRL (Keskar et al., 2019) has a similar penalty but another rule: it divides logits
 * above 0 and multiplies logits below 0. A device returns log-probabilities, which do not show where a model's logits
 * are 0. An equal number is mostly a stronger penalty in CTRL: its 1.2 lowers a logit of 20 by 3.3, which divides the
 * probability by 28 instead of 1.2.
 */
export function repetitionDivisor(penalty: number, options: { readonly last?: number } = {}): Processor {
  const { last = Number.POSITIVE_INFINITY } = options;
  check(penalty > 0 && Number.isFinite(penalty), 'penalty', 'above 0', penalty);
  check(last >= 0, 'last', '0 or more', last);
  const cost = Math.log(penalty);
  return (candidates, { tokens }) => {
    const earlierTokens = new Set(
      Number.isFinite(last) ? tokens.slice(tokens.length - Math.min(last, tokens.length)) : tokens,
    );
    adjust(candidates, (token) => (earlierTokens.has(token) ? -cost : 0));
  };
}

/** Lowers a token's logit by `penalty` for each time that this generation has chosen the token. */
export function frequencyPenalty(penalty: number): Processor {
  check(Number.isFinite(penalty), 'penalty', 'a number', penalty);
  const process = (candidates: Candidates, state: ProcessorState) => {
    const counts = countsOf(state);
    adjust(candidates, (token) => -penalty * (counts.get(token) ?? 0));
  };
  return Object.assign(process, { change: { frequency: penalty } });
}

/** Lowers the logits of tokens that this generation has chosen at least once by `penalty`. */
export function presencePenalty(penalty: number): Processor {
  check(Number.isFinite(penalty), 'penalty', 'a number', penalty);
  const process = (candidates: Candidates, state: ProcessorState) => {
    const counts = countsOf(state);
    adjust(candidates, (token) => (counts.has(token) ? -penalty : 0));
  };
  return Object.assign(process, { change: { presence: penalty } });
}

/** Adds to the logits of single tokens, by token id. A bias above 0 with a speculator throws `unsupported`. */
export function logitBias(bias: Readonly<Record<number, number>>): Processor {
  const values = new Map(Object.entries(bias).map(([token, value]) => [Number(token), value]));
  const process = (candidates: Candidates) => adjust(candidates, (token) => values.get(token) ?? 0);
  const tokens = [...values].flatMap(([token, value]) => (value > 0 ? [token] : []));
  return Object.assign(process, { tokens, change: { biases: values } });
}

/** Rules tokens out. */
export function banTokens(tokens: Iterable<number>): Processor {
  const biases = new Map(Array.from(tokens, (token) => [token, Number.NEGATIVE_INFINITY] as const));
  const process = (candidates: Candidates) => adjust(candidates, (token) => biases.get(token) ?? 0);
  return Object.assign(process, { change: { biases } });
}

/** Rules out the model's own end-of-text tokens until `count` tokens have been generated. */
export function minTokens(count: number): Processor {
  checkCount('count', count, 0);
  return (candidates, { generated, model }) => {
    if (generated >= count) return;
    const { eos, bos } = specialTokens(model.name);
    adjust(candidates, (token) => (token === bos || eos.includes(token) ? Number.NEGATIVE_INFINITY : 0));
  };
}

function adjust({ tokens, logProbabilities }: Candidates, by: (token: number) => number): void {
  for (let i = 0; i < logProbabilities.length; i++) {
    logProbabilities[i] = (logProbabilities[i] as number) + by(tokens[i] as number);
  }
}

function countsOf({ tokens, generated }: SamplingState): Map<number, number> {
  const counts = new Map<number, number>();
  for (let i = Math.max(0, tokens.length - generated); i < tokens.length; i++) {
    const token = tokens[i] as number;
    counts.set(token, (counts.get(token) ?? 0) + 1);
  }
  return counts;
}

/** The candidates not ruled out, most probable first. */
function ordered({ tokens, logProbabilities }: Candidates): Candidates {
  const rows = logProbabilities
    .map((logProbability, i) => ({ logProbability, token: tokens[i] as number }))
    .filter(({ logProbability }) => logProbability > Number.NEGATIVE_INFINITY);
  if (rows.length === 0) {
    throw new InferletError('invalid-argument', 'The processors ruled out every candidate, so no token can follow.');
  }
  rows.sort((a, b) => b.logProbability - a.logProbability || a.token - b.token);
  return { tokens: rows.map(({ token }) => token), logProbabilities: rows.map(({ logProbability }) => logProbability) };
}

/**
 * Forces a generation to produce these tokens, or this text as a continuation, and then the end of the text. The model computes every token
 * as if it had chosen it (teacher forcing), so a program can be tried with a model that would not write the reply. `maxTokens`, stop
 * strings and constraints still apply; the reply must fit the constraint.
 *
 * @example
 * const { text } = await ctx.generate({ sampler: script('Paris.') }).collect();
 */
export const script = (reply: string | readonly number[]): GuestSampler => ({
  kind: 'guest',
  candidates: 1,
  seed: undefined,
  choose: failOutsideGenerate,
  begin(model) {
    const tokens = typeof reply === 'string' ? tokenizeContinuation(reply, { model: model.name }) : reply;
    const end = endOf(model);
    return { ...this, choose: (_, { generated }) => tokens[generated] ?? end };
  },
});

/**
 * Returns a function that gives each generation its sampler: the next scripted reply, or `otherwise` when no reply is left. With it, a
 * client can try out a program by passing replies in an input `script`.
 *
 * @example
 * const next = scripts(input.script, () => temperature(0.8));
 * const { text } = await ctx.generate({ sampler: next() }).collect();
 */
export function scripts(
  replies: readonly (string | readonly number[])[] = [],
  otherwise: () => Sampler = greedy,
): () => Sampler {
  let usedReplies = 0;
  return () => {
    const reply = replies[usedReplies++];
    return reply === undefined ? otherwise() : script(reply);
  };
}

const failOutsideGenerate = (): never => {
  throw new InferletError('invalid-argument', 'A script works only as the sampler of generate().');
};

function endOf({ name }: ModelInfo): number {
  const { eos, bos } = specialTokens(name);
  const end = eos[0] ?? bos;
  if (end !== undefined && end !== null) return end;
  throw new InferletError('unsupported', `${name} has no token that ends a text, so a script could not end.`);
}
