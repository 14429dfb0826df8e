import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { StateScores, TopTokens } from '../backend.ts';
import { allowedWords } from '../check.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { Tensor } from './library.ts';
import { addLogits } from './logits.ts';
import { floats, projectedRows, type RunResult } from './outputs.ts';
import type { LazySession } from './sessions.ts';
import { type QuantizedRanges, type WeightBits, WeightNodes } from './weights.ts';

/** Maximum number of logits in one run of the head, which keeps several 4-byte copies of each. More states are split into several runs. */
const MAX_LOGITS = 1 << 24;

/** The head alone, for states that were computed earlier: the decoder's own head cannot run without the decoder. */
export class Head {
  readonly #config: ModelConfig;
  readonly #session: LazySession;

  /** `session` runs the graph that `buildHead` makes. */
  constructor(config: ModelConfig, session: LazySession) {
    this.#config = config;
    this.#session = session;
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const k = Math.min(topK, this.#config.vocabularySize);
    const tokens = new Uint32Array(count * k);
    const logProbabilities = new Float32Array(count * k);
    for (const { from, to } of this.#runRanges(count)) {
      const result = await this.#run(states, from, to, { topK: k, picks: null });
      const top = projectedRows(result, to - from, k);
      tokens.set(top.tokens, from * k);
      logProbabilities.set(top.logProbabilities, from * k);
    }
    return { topK: k, tokens, logProbabilities };
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    const { vocabularySize } = this.#config;
    const logProbabilities: Float32Array[] = [];
    const entropies = new Float32Array(count);
    for (const { from, to } of this.#runRanges(count)) {
      const lists = tokens.slice(from, to);
      const picks = new Int32Array(lists.reduce((sum, { length }) => sum + length, 0));
      let nextPick = 0;
      for (const [row, list] of lists.entries())
        for (const token of list) picks[nextPick++] = row * vocabularySize + token;
      const result = await this.#run(states, from, to, { topK: 1, picks });
      const picked = floats(result.picked);
      const logSums = floats(result.log_sum);
      let next = 0;
      lists.forEach((list, row) => {
        logProbabilities.push(picked.subarray(next, next + list.length).map((logit) => logit - logSums[row]));
        next += list.length;
      });
      entropies.set(floats(result.entropies), from);
    }
    return { logProbabilities, entropies };
  }

  async #run(
    states: Float32Array,
    from: number,
    to: number,
    { topK, picks }: { readonly topK: number; readonly picks: Int32Array | null },
  ): Promise<RunResult> {
    const session = await this.#session.get();
    const { hiddenSize } = this.#config;
    const runStates = states.subarray(from * hiddenSize, to * hiddenSize);
    const feeds = {
      states: new Tensor('float32', runStates, [to - from, hiddenSize]),
      wants_top: new Tensor('bool', [picks === null], [1]),
      wants_scores: new Tensor('bool', [picks !== null], [1]),
      top_k: new Tensor('int64', BigInt64Array.of(BigInt(topK)), [1]),
      picks: new Tensor('int32', picks ?? new Int32Array(0), [picks?.length ?? 0]),
    };
    const outputNames = picks === null ? ['top_tokens', 'top_logits'] : ['picked', 'entropies'];
    return session.run(feeds, [...outputNames, 'log_sum']);
  }

  #runRanges(count: number): { readonly from: number; readonly to: number }[] {
    const statesPerRun = Math.max(1, Math.floor(MAX_LOGITS / this.#config.vocabularySize));
    return Array.from({ length: Math.ceil(count / statesPerRun) }, (_, i) => ({
      from: i * statesPerRun,
      to: Math.min(count, (i + 1) * statesPerRun),
    }));
  }
}

const { float32, int32, int64, boolean } = ElementType;

/**
 * Builds the head as a separate graph, for states that were computed earlier.
 *
 * Inputs: `states` float32 [M, hidden], M at least 1; `wants_top`, `wants_scores` bool [1]; `top_k` int64 [1]; `picks` int32 [P], flat
 * indices among the M × vocabulary logits.
 * Outputs: `log_sum` float32 [M, 1], the logarithm of the sum of all exponentiated logits; `top_logits` float32 and `top_tokens` int64
 * [M, K], largest first, equal ones by token; `picked` float32 [P], logits; `entropies` float32 [M, 1], nats.
 */
export function buildHead(
  model: LoadedModel,
  headBits: WeightBits,
  quantized: ReadonlyMap<string, QuantizedRanges>,
): Uint8Array {
  const graph = new GraphBuilder();
  const weights = new WeightNodes(graph, model, quantized);
  graph.input('states', float32, ['M', model.config.hiddenSize]);
  graph.input('wants_top', boolean, [1]);
  graph.input('wants_scores', boolean, [1]);
  graph.input('top_k', int64, [1]);
  graph.input('picks', int32, ['P']);
  const logits = addLogits(graph, weights, model.config, 'states', headBits);
  const largest = graph.node('ReduceMax', [logits, graph.integers([1])], 'largest', { keepdims: 1 });
  const { shifted, powers, sum, logOfSum } = addLogSum(graph, logits, largest, 'log_sum');
  graph.when('wants_top', TOP_OUTPUTS, (branch) => addTop(branch, logits, ['largest-logits', 'largest-tokens']));
  const scores = [
    { name: 'picked', type: float32, emptyDims: [0] },
    { name: 'entropies', type: float32, emptyDims: [0, 1] },
  ];
  graph.when('wants_scores', scores, (branch) => {
    const flat = branch.node('Reshape', [logits, branch.integers([-1])], 'logits-flat');
    const picked = branch.node('Gather', [flat, 'picks'], 'logits-picked');
    // −Σ p ln p, with p = power / sum and ln p = shifted − ln sum.
    const weighted = branch.node('Mul', [powers, shifted], 'powers-weighted');
    const total = branch.node('ReduceSum', [weighted, branch.integers([1])], 'weighted-sum', { keepdims: 1 });
    const mean = branch.node('Div', [total, sum], 'mean-shifted');
    return [picked, branch.node('Sub', [logOfSum, mean], 'entropies-of-logits')];
  });
  for (const { name, type, dims } of TOP_OUTPUTS) graph.output(name, type, dims);
  graph.output('log_sum', float32, ['M', 1]);
  graph.output('picked', float32, ['P']);
  graph.output('entropies', float32, ['M', 1]);
  return graph.encode();
}

/**
 * Ends the decoder with the most probable tokens after some of its states, of the whole vocabulary or of allowed tokens, and with what it takes to
 * draw from all of them (see `addSums`).
 */
export function addDecoderHead(graph: GraphBuilder, config: ModelConfig, logits: string): void {
  // In ONNX Runtime 1.30, TopK of no rows ends the process, hence `has_head`. The sums are optional because they are costly.
  graph.when('has_head', TOP_OUTPUTS, (branch) => addTop(branch, logits, ['largest-logits', 'largest-tokens']));
  graph.when('wants_sums', SUM_OUTPUTS, (branch) => addSums(branch, logits, 'top_logits', 'all'));
  graph.when('is_masked', [...TOP_OUTPUTS, ...SUM_OUTPUTS].map(ofAllowed), (branch) => {
    const masked = addTokenMask(branch, config, logits);
    // Infinite changes leave tokens out, as the mask does. The places are distinct.
    const changed = branch.node('ScatterND', [masked, 'change_places', 'changes'], 'logits-changed', {
      reduction: 'add',
    });
    const top = addTop(branch, changed, ['allowed-logits', 'allowed-tokens']);
    return [...top, ...addSums(branch, changed, top[0], 'allowed')];
  });
  for (const { name, type, dims } of [...TOP_OUTPUTS, ...SUM_OUTPUTS]) {
    graph.output(name, type, dims);
    graph.output(`allowed_${name}`, type, dims);
  }
}

const TOP_OUTPUTS = [
  { name: 'top_logits', type: float32, emptyDims: [0, 1], dims: ['M', 'K'] },
  { name: 'top_tokens', type: int64, emptyDims: [0, 1], dims: ['M', 'K'] },
];
const SUM_OUTPUTS = [
  { name: 'sum', type: float32, emptyDims: [0, 1], dims: ['M', 1] },
  { name: 'is_open', type: boolean, emptyDims: [0], dims: ['M'] },
  { name: 'open_logits', type: float32, emptyDims: [0, 1], dims: ['open', 'vocabulary'] },
  { name: 'open_powers', type: float32, emptyDims: [0, 1], dims: ['open', 'vocabulary'] },
];

function ofAllowed<T extends { readonly name: string }>(output: T): T {
  return { ...output, name: `allowed_${output.name}` };
}

/**
 * Adds each row's sum of e^((logit - largest logit) / temperature). A row is open when its top tokens have less than its share of this sum and reach
 * its floor: then a draw from the row may depend on the other tokens, too, and the last results have all its logits and powers. Returns the values of
 * `SUM_OUTPUTS`.
 */
function addSums(graph: GraphBuilder, logits: string, topLogits: string, name: string): readonly string[] {
  const columns = graph.integers([1]);
  const settings = [`${name}:inverse-temperatures`, `${name}:shares`, `${name}:floors`];
  graph.nodeOf('Split', ['row_settings', graph.integers([1, 1, 1])], settings, { axis: 1 });
  const largest = first(graph, topLogits, `${name}:largest`);
  const powersOf = (values: string, of: string) => {
    const shifted = graph.node('Sub', [values, largest], `${name}:${of}-shifted`);
    const scaled = graph.node('Mul', [shifted, settings[0]], `${name}:${of}-scaled`);
    const powers = graph.node('Exp', [scaled], `${name}:${of}-powers`);
    return { powers, sum: graph.node('ReduceSum', [powers, columns], `${name}:${of}-sum`, { keepdims: 1 }) };
  };
  const whole = powersOf(logits, 'whole');
  const top = powersOf(topLogits, 'top');
  const needed = graph.node('Mul', [whole.sum, settings[1]], `${name}:needed`);
  const isShort = graph.node('Less', [top.sum, needed], `${name}:is-short`);
  const lastPlace = [graph.integers([-1]), graph.integers([Number.MAX_SAFE_INTEGER]), columns];
  const last = graph.node('Slice', [top.powers, ...lastPlace], `${name}:last-power`);
  const passes = graph.node('GreaterOrEqual', [last, settings[2]], `${name}:passes`);
  const both = graph.node('And', [isShort, passes], `${name}:is-open-column`);
  const isOpen = graph.node('Reshape', [both, graph.integers([-1])], `${name}:is-open`);
  const openRows = (values: string, output: string) => graph.node('Compress', [values, isOpen], output, { axis: 0 });
  return [whole.sum, isOpen, openRows(logits, `${name}:open-logits`), openRows(whole.powers, `${name}:open-powers`)];
}

/** Adds −∞ to each logit whose bit in `allowed` is 0. Each byte of `allowed` selects its eight terms from a table, so 32 bytes are copied at once. */
function addTokenMask(graph: GraphBuilder, config: ModelConfig, logits: string): string {
  const { vocabularySize } = config;
  const terms = Float32Array.from({ length: 256 * 8 }, (_, i) => {
    const byte = i >> 3;
    const bit = i & 7;
    return (byte >> bit) & 1 ? 0 : Number.NEGATIVE_INFINITY;
  });
  const table = graph.floats('mask-terms', terms, [256, 8]);
  const bytes = graph.node('Cast', ['allowed'], 'mask-bytes', { to: int32 });
  const termsByByte = graph.node('Gather', [table, bytes], 'mask-by-byte');
  let mask = graph.node('Reshape', [termsByByte, graph.integers([0, -1])], 'mask-padded');
  if (vocabularySize !== 32 * allowedWords(config)) {
    const one = graph.integers([1]);
    mask = graph.node('Slice', [mask, graph.integers([0]), graph.integers([vocabularySize]), one], 'mask-cut');
  }
  return graph.node('Add', [logits, mask], 'logits-masked');
}

function addTop(graph: GraphBuilder, logits: string, names: readonly [string, string]): readonly [string, string] {
  graph.nodeOf('TopK', [logits, 'top_k'], names, { axis: -1 });
  return names;
}

/** The first of each row's top logits: its largest. */
function first(graph: GraphBuilder, topLogits: string, name: string): string {
  const one = graph.integers([1]);
  return graph.node('Slice', [topLogits, graph.integers([0]), one, one], name);
}

/** Adds `output`, the log-sum of each row's logits, and returns the values on the way to it. ReduceLogSumExp is up to 100 times slower. */
function addLogSum(graph: GraphBuilder, logits: string, largest: string, output: string) {
  const shifted = graph.node('Sub', [logits, largest], `${output}:shifted`);
  const powers = graph.node('Exp', [shifted], `${output}:powers`);
  const sum = graph.node('ReduceSum', [powers, graph.integers([1])], `${output}:sum`, { keepdims: 1 });
  const logOfSum = graph.node('Log', [sum], `${output}:log`);
  graph.node('Add', [logOfSum, largest], output);
  return { shifted, powers, sum, logOfSum };
}
