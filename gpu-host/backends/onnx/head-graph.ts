import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { allowedWords } from '../check.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { headLinear, type QuantizedRanges, type WeightBits, WeightNodes } from './weights.ts';

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
  const logits = weights.multiply('states', headLinear(model.config, headBits));
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
  outputTop(graph);
  graph.output('picked', float32, ['P']);
  graph.output('entropies', float32, ['M', 1]);
  return graph.encode();
}

/** Ends the decoder with the most probable tokens after some of its states, from the whole vocabulary or from allowed tokens. */
export function addDecoderHead(graph: GraphBuilder, config: ModelConfig, logits: string): void {
  // In ONNX Runtime 1.30, TopK of no rows ends the process, hence `has_head`. The log-sum is optional because it is costly.
  graph.when('has_head', TOP_OUTPUTS, (branch) => addTop(branch, logits, ['largest-logits', 'largest-tokens']));
  graph.when('wants_log_sum', [{ name: 'log_sum', type: float32, emptyDims: [0, 1] }], (branch) => {
    addLogSum(branch, logits, first(branch, 'top_logits', 'largest-logit'), 'logits-log-sum');
    return ['logits-log-sum'];
  });
  graph.when(
    'is_masked',
    [
      { name: 'allowed_top_logits', type: float32, emptyDims: [0, 1] },
      { name: 'allowed_top_tokens', type: int64, emptyDims: [0, 1] },
      { name: 'allowed_log_sum', type: float32, emptyDims: [0, 1] },
    ],
    (branch) => {
      const masked = addTokenMask(branch, config, logits);
      const top = addTop(branch, masked, ['masked-top-logits', 'masked-top-tokens']);
      addLogSum(branch, masked, first(branch, top[0], 'masked-largest'), 'masked-log-sum');
      return [...top, 'masked-log-sum'];
    },
  );
  outputTop(graph);
  graph.output('allowed_top_logits', float32, ['M', 'K']);
  graph.output('allowed_top_tokens', int64, ['M', 'K']);
  graph.output('allowed_log_sum', float32, ['M', 1]);
}

const TOP_OUTPUTS = [
  { name: 'top_logits', type: float32, emptyDims: [0, 1] },
  { name: 'top_tokens', type: int64, emptyDims: [0, 1] },
];

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

function outputTop(graph: GraphBuilder): void {
  graph.output('top_logits', float32, ['M', 'K']);
  graph.output('top_tokens', int64, ['M', 'K']);
  graph.output('log_sum', float32, ['M', 1]);
}
