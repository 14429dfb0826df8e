import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { allowedWords } from '../check.ts';
import { windowSizes } from '../positions.ts';
import { type Rotation, rotationsOf } from '../rotary.ts';
import { adapterInputs } from './adapter.ts';
import { type Attribute, ElementType, GraphBuilder } from './graph-builder.ts';
import { addDecoderHead } from './head.ts';
import { addLogits, scaled } from './logits.ts';
import { SEGMENT_SLOTS } from './packing.ts';
import { segmentInput } from './segments.ts';
import { type LinearLayer, layerLinears, type QuantizedRanges, type WeightBits, WeightNodes } from './weights.ts';

/** Options of {@link buildDecoder}. */
interface GraphOptions {
  readonly bits: WeightBits;
  readonly headBits: WeightBits;
  /** Rows of each plane of the pool. */
  readonly slotCount: number;
  /** True when every multiplication of the graph's layers takes an adapter's matrices. */
  readonly adapter: boolean;
}

/**
 * Builds the decoder as one ONNX graph: paged attention over a pool of keys and values that the caller owns (`KvPool`).
 *
 * Inputs, for B rows of T tokens over W columns. A row is one sequence or several (`rows.ts`); a column is an input of the row or a context slot,
 * to which tokens may attend. T and W are those of the largest row of the run; shorter rows are padded.
 * - `tokens` int32 [B, T], `positions` int64 [B, T]: positions index `cos` and `sin`, float32 [rows, rotaryDim / 2]; `query_cos` and
 *   `query_sin` are the same times the scale of scores, where whole heads are rotated. Layers with a rotation of their own have tables `local_…`
 * - `embed_rows` int64 [E, 1], `embeds` float32 [E, hidden]: rows of the flat B × T inputs that the caller gives as embeds
 * - `slots` int32 [B, W]: the pool slot to gather for each column; the keys and values of the row's own T inputs then replace the first T columns
 * - `bias` float32 [B, 1, T, W]: 0 where an input sees a column, very negative elsewhere; `window_bias.N` the same for layers with a window of N
 * - `has_segments` bool [1]: true when rows also attend to segments, which needs T = 1; never true with `wants_attention`
 * - `segments.p` float32 [S, kvHeads, SEGMENT_SLOTS, headDim] for each plane p of the pool; `segment_rows` int32 [S]: each segment's row;
 *   `row_segments` int32 [B, G]: each row's segments; `segment_bias` float32 [B, G, 1]: 0 for a segment of the row, very negative past its last
 * - `pool` float32 [2 × layers × slotCount, kvHeads × headDim]: planes of keys and values, layer by layer
 * - `out_rows` int32 [R]: indices of the inputs, among the flat B × T, whose states are wanted; R may be 0
 * - `head_rows` int32 [M]: indices of the states, among the R, that go to the head; M may be 0
 * - `top_k` int64 [1]; `has_head`, `wants_sums` bool [1]: true to compute `top_*`; `sum`, `is_open`, `open_logits`; never true without head rows
 * - `row_settings` float32 [M, 3]: 1 / temperature, share and floor of each row
 * - `is_masked` bool [1]: true to compute `allowed_*` instead, over the tokens of `allowed` uint8 [M, ceil(vocabulary / 32) × 4] (token t is bit
 *   t % 8 of byte t / 8), with `changes` float32 [C] added to the logits at `change_places` int64 [C, 2] (head row, token). When `is_masked` is
 *   false, `allowed` has no rows
 * - `wants_attention` bool [1]: true to compute `received`
 * - with `adapter`, for each multiplication of a layer, the two inputs of `adapterInputs`; their ranks may differ, and be 0
 *
 * Outputs, empty when not wanted:
 * - `states` float32 [R, hidden]: after the final norm
 * - `top_logits` float32 and `top_tokens` int64 [M, K]: largest first, equal ones by token
 * - `sum` float32 [M, 1]: of e^((logit - largest logit) / temperature) over all tokens; `is_open` bool [M]: true for rows whose K top tokens have
 *   less than the row's share of the sum, and of which the last has at least its floor of the first one's probability; `open_logits` and
 *   `open_powers` float32 [open rows, vocabulary]: the logits of these rows, and the terms of their sums
 * - `allowed_top_logits` and so on: the same over allowed tokens
 * - `new_kv` float32 [2 × layers × B, T, kvHeads × headDim]: rotated keys and values of the inputs, in the pool's order
 * - `received` float32 [B, T, W]: each input's attention to each column, the mean over heads and layers
 */
export function buildDecoder(
  model: LoadedModel,
  options: GraphOptions,
  quantized: ReadonlyMap<string, QuantizedRanges>,
): Uint8Array {
  const { config } = model;
  const { float32, uint8, int32, int64, boolean } = ElementType;
  const graph = new GraphBuilder();
  const weights = new WeightNodes(graph, model, quantized);
  const { hiddenSize, headDim, layers } = config;
  const rotations = namedRotations(config);

  graph.input('tokens', int32, ['B', 'T']);
  graph.input('positions', int64, ['B', 'T']);
  for (const prefix of new Set(rotations.flatMap((rotation) => rotation?.prefix ?? []))) {
    for (const table of ROTARY_TABLES) graph.input(`${prefix}${table}`, float32, ['positions', config.rotaryDim / 2]);
  }
  graph.input('embed_rows', int64, ['E', 1]);
  graph.input('embeds', float32, ['E', hiddenSize]);
  graph.input('slots', int32, ['B', 'W']);
  graph.input('bias', float32, ['B', 1, 'T', 'W']);
  for (const window of windowSizes(config)) graph.input(windowBias(window), float32, ['B', 1, 'T', 'W']);
  graph.input('has_segments', boolean, [1]);
  graph.input('wants_attention', boolean, [1]);
  graph.input('segment_rows', int32, ['S']);
  graph.input('row_segments', int32, ['B', 'G']);
  graph.input('segment_bias', float32, ['B', 'G', 1]);
  for (let plane = 0; plane < 2 * layers; plane++) {
    graph.input(segmentInput(plane), float32, ['S', config.kvHeads, SEGMENT_SLOTS, headDim]);
  }
  graph.input('pool', float32, [2 * layers * options.slotCount, kvSize(config)]);
  graph.input('out_rows', int32, ['R']);
  graph.input('head_rows', int32, ['M']);
  graph.input('top_k', int64, [1]);
  graph.input('has_head', boolean, [1]);
  graph.input('wants_sums', boolean, [1]);
  graph.input('row_settings', float32, ['M', 3]);
  graph.input('is_masked', boolean, [1]);
  graph.input('allowed', uint8, ['M-masked', 4 * allowedWords(config)]);
  graph.input('change_places', int64, ['C', 2]);
  graph.input('changes', float32, ['C']);

  const project: Project = (x, linear) => {
    const projected = weights.multiply(x, linear);
    return options.adapter ? addAdapter(graph, x, projected, linear) : projected;
  };
  let row: ResidualRow = addEmbedding(graph, weights, config);
  const newKv: string[] = [];
  const received: string[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const result = addDecoderLayer(graph, weights, project, config, options, layer, row, rotations[layer] ?? null);
    row = result.row;
    newKv.push(result.key, result.value);
    received.push(result.received);
  }
  graph.node('Concat', newKv, 'new_kv', { axis: 0 });
  const headStates = graph.node('Gather', [row.normed, 'head_rows'], 'head-states');
  const logits = addLogits(graph, weights, config, headStates, options.headBits);
  addDecoderHead(graph, config, logits);

  graph.output(row.normed, float32, ['R', hiddenSize]);
  graph.output('new_kv', float32, ['planes', 'T', kvSize(config)]);
  graph.when('wants_attention', [{ name: 'received', type: float32, emptyDims: NO_ATTENTION }], (branch) => [
    branch.node('Mean', received, 'received-mean'),
  ]);
  graph.output('received', float32, ['B', 'T', 'W']);
  return graph.encode();
}

/** Tables of a rotation. */
export const ROTARY_TABLES = ['cos', 'sin', 'query_cos', 'query_sin'] as const;

/** A rotation, with the prefix of its tables' names. */
export interface NamedRotation extends Rotation {
  readonly prefix: string;
}

/** The rotation of each layer; null where a layer has none. Layers that turn alike share an object. */
export function namedRotations(config: ModelConfig): readonly (NamedRotation | null)[] {
  const rotations = rotationsOf(config);
  const distinct = [...new Set(rotations)].filter((rotation) => rotation !== null);
  const named = new Map(
    distinct.map((rotation, i) => [rotation, { ...rotation, prefix: i === 0 ? '' : `local${i}_` }]),
  );
  return rotations.map((rotation) => (rotation === null ? null : (named.get(rotation) ?? null)));
}

/** Name of the input that hides what lies outside a window. */
export function windowBias(window: number): string {
  return `window_bias.${window}`;
}

/** Adds a linear layer to the graph: the product of `x` with the weights, plus the adapter's change where the graph takes adapters. */
type Project = (x: string, linear: LinearLayer) => string;

/** `projected + (x · downᵀ) · up` (Hu et al., LoRA, 2021, section 4.1). The matrices are inputs, so one session serves all adapters. */
function addAdapter(graph: GraphBuilder, x: string, projected: string, linear: LinearLayer): string {
  const { float32 } = ElementType;
  const { name, rows, columns } = linear;
  const { down, up } = adapterInputs(linear);
  graph.input(down, float32, [`${name}:rank`, columns]);
  graph.input(up, float32, [`${name}:rank`, rows]);
  const inner = graph.node('FusedMatMul', [x, down], `${name}:adapter-inner`, { transB: 1, alpha: { float: 1 } });
  const change = graph.node('MatMul', [inner, up], `${name}:adapter-change`);
  return graph.node('Add', [projected, change], `${name}:adapted`);
}

/** The residual stream `x`, and its normed values, which the next sublayer reads. */
interface ResidualRow {
  readonly x: string;
  readonly normed: string;
}

function addEmbedding(graph: GraphBuilder, weights: WeightNodes, config: ModelConfig): ResidualRow {
  const { hiddenSize } = config;
  const rows = weights.rows('model.embed_tokens.weight', 'tokens', 'looked-up');
  const lookedUp = scaled(graph, rows, config.embeddingScale, 'looked-up-scaled');
  const flat = graph.node('Reshape', [lookedUp, graph.integers([-1, hiddenSize])], 'looked-up-flat');
  const mixed = graph.node('ScatterND', [flat, 'embed_rows', 'embeds'], 'inputs-flat');
  const shape = graph.node('Shape', ['tokens'], 'inputs-shape');
  const inputShape = graph.node('Concat', [shape, graph.integers([hiddenSize])], 'inputs-full-shape', { axis: 0 });
  const x = graph.node('Reshape', [mixed, inputShape], 'inputs');
  if (config.norms === 'after') return { x, normed: x };
  return { x, normed: addNorm(graph, weights, config, x, 'model.layers.0.input_layernorm.weight', 'inputs-normed') };
}

function addNorm(
  graph: GraphBuilder,
  weights: WeightNodes,
  config: ModelConfig,
  x: string,
  norm: string,
  name: string,
): string {
  const epsilon = { float: config.rmsNormEpsilon };
  return graph.node('SimplifiedLayerNormalization', [x, weights.norm(norm)], name, { axis: -1, epsilon });
}

function addDecoderLayer(
  graph: GraphBuilder,
  weights: WeightNodes,
  project: Project,
  config: ModelConfig,
  options: GraphOptions,
  layer: number,
  row: ResidualRow,
  rotation: NamedRotation | null,
): { row: ResidualRow } & Omit<LayerAttention, 'output'> {
  const { hiddenSize, intermediateSize, layers, heads, headDim } = config;
  const linears = layerLinears(config, layer, options.bits);
  const at = (name: string) => `${name}.${layer}`;
  const isLast = layer === layers - 1;

  const attention = addAttention(graph, weights, project, config, options, layer, row.normed, rotation);
  let attended = attention.output;
  let residual = row.x;
  if (isLast) {
    // After the last attention no input depends on another, so only the wanted inputs are computed from here on.
    const flat = graph.node('Reshape', [attended, graph.integers([-1, heads * headDim])], 'attended-flat');
    attended = graph.node('Gather', [flat, 'out_rows'], 'attended-wanted');
    const flatResidual = graph.node('Reshape', [row.x, graph.integers([-1, hiddenSize])], 'residual-flat');
    residual = graph.node('Gather', [flatResidual, 'out_rows'], 'residual-wanted');
  }
  /** Adds a block's result to the residual stream, and norms the sum for the next block; with an empty `norm`, the next block takes it as it is. */
  const addAndNorm = (a: string, b: string, norm: string, sum: string, normed: string): ResidualRow => {
    if (norm === '') {
      graph.node('Add', [a, b], sum);
      return { x: sum, normed: sum };
    }
    const outputs = [normed, '', '', sum];
    const epsilon = { float: config.rmsNormEpsilon };
    graph.nodeOf('SkipSimplifiedLayerNormalization', [a, b, weights.norm(norm)], outputs, { epsilon });
    return { x: sum, normed };
  };
  const prefix = `model.layers.${layer}`;
  /** A block's result as it is added. */
  const result = (block: 'self_attn' | 'mlp', projected: string): string => {
    const norm = `${prefix}.${block}.output_norm.weight`;
    const normed =
      config.norms === 'before' ? projected : addNorm(graph, weights, config, projected, norm, at(`${block}-normed`));
    return scaled(graph, normed, config.residualScale, at(`${block}-scaled`));
  };
  let projected = project(attended, linears.output);
  if (config.outputBias) {
    const bias = weights.tensor(`${prefix}.self_attn.o_proj.bias`);
    projected = graph.node('Add', [projected, bias], at('attention-biased'));
  }
  const inputNorms = { before: 'post_attention_layernorm', around: 'mlp.input_norm', after: '' };
  const inputNorm = inputNorms[config.norms];
  const afterAttention = addAndNorm(
    residual,
    result('self_attn', projected),
    inputNorm && `${prefix}.${inputNorm}.weight`,
    at('after-attention'),
    at('after-attention-normed'),
  );
  const gateUp = project(afterAttention.normed, linears.gateUp);
  const halves = graph.integers([intermediateSize, intermediateSize]);
  graph.nodeOf('Split', [gateUp, halves], [at('gate'), at('up')], { axis: -1 });
  // SiLU: QuickGelu is x × sigmoid(alpha × x). FastGelu is GELU with tanh.
  const activated =
    config.activation === 'gelu'
      ? graph.node('FastGelu', [at('gate')], at('activated'))
      : graph.node('QuickGelu', [at('gate')], at('activated'), { alpha: { float: 1 } });
  const gated = graph.node('Mul', [activated, at('up')], at('gated'));
  const nextNorm = config.norms === 'after' ? '' : `model.layers.${layer + 1}.input_layernorm.weight`;
  const next = addAndNorm(
    afterAttention.x,
    result('mlp', project(gated, linears.down)),
    isLast ? 'model.norm.weight' : nextNorm,
    at('after-mlp'),
    isLast ? 'states' : at('after-mlp-normed'),
  );
  return { ...attention, row: next };
}

/** Dimensions of `received` when it is not wanted. */
const NO_ATTENTION = [0, 0, 0];

interface LayerAttention {
  readonly output: string;
  /** Rotated keys, and values, of the inputs. */
  readonly key: string;
  readonly value: string;
  /** Attention to each column, [B, T, W], the mean over heads; empty unless wanted. */
  readonly received: string;
}

function addAttention(
  graph: GraphBuilder,
  weights: WeightNodes,
  project: Project,
  config: ModelConfig,
  options: GraphOptions,
  layer: number,
  normed: string,
  rotation: NamedRotation | null,
): LayerAttention {
  const { heads, kvHeads, headDim } = config;
  const linears = layerLinears(config, layer, options.bits);
  const at = (name: string) => `${name}.${layer}`;
  const selfAttention = (name: string) => weights.tensor(`model.layers.${layer}.self_attn.${name}`);

  let qkv = project(normed, linears.qkv);
  if (config.attentionBias) {
    const biases = ['q_proj.bias', 'k_proj.bias', 'v_proj.bias'].map(selfAttention);
    qkv = graph.node('Add', [qkv, graph.node('Concat', biases, at('qkv-bias'), { axis: 0 })], at('qkv-biased'));
  }
  const sizes = graph.integers([heads * headDim, kvHeads * headDim, kvHeads * headDim]);
  graph.nodeOf('Split', [qkv, sizes], [at('query'), at('key'), at('value')], { axis: -1 });
  const rotated = (name: 'query' | 'key', count: number) => {
    let row = at(name);
    const norm = `model.layers.${layer}.self_attn.${name === 'query' ? 'q_norm' : 'k_norm'}.weight`;
    if (config.queryKeyNorm && config.queryKeyNormSpan === 'row')
      row = addNorm(graph, weights, config, row, norm, at(`${name}-normed`));
    else if (config.queryKeyNorm) {
      const perHead = graph.node('Reshape', [row, graph.integers([0, 0, count, headDim])], at(`${name}-heads`));
      addNorm(graph, weights, config, perHead, norm, at(`${name}-normed`));
      row = graph.node(
        'Reshape',
        [at(`${name}-normed`), graph.integers([0, 0, count * headDim])],
        at(`${name}-joined`),
      );
    }
    const isQuery = name === 'query';
    // The tables of whole heads scale queries on the way.
    const isWhole = rotation !== null && config.rotaryDim === headDim;
    if (isQuery && !isWhole) row = scaled(graph, row, config.attentionScale, at('query-scaled'));
    if (rotation === null) return row;
    const dimensions = isWhole ? 0 : config.rotaryDim;
    const attributes = {
      interleaved: rotation.pairs === 'neighbours' ? 1 : 0,
      ...{ num_heads: count, rotary_embedding_dim: dimensions },
    };
    const tables = isQuery && isWhole ? ['query_cos', 'query_sin'] : ['cos', 'sin'];
    const inputs = [row, 'positions', ...tables.map((table) => rotation.prefix + table)];
    return graph.node('RotaryEmbedding', inputs, at(`${name}-rotated`), attributes);
  };
  const query = rotated('query', heads);
  const key = rotated('key', kvHeads);

  // Gather the pool's rows, then overwrite the first columns with the inputs' own keys or values.
  const gathered = (name: 'keys' | 'values', plane: number, fresh: string) => {
    const rows = graph.node('Add', ['slots', graph.integer32(plane * options.slotCount)], at(`${name}-rows`));
    const past = graph.node('Gather', ['pool', rows], at(`${name}-past`));
    return graph.node('TensorScatter', [past, fresh], at(name), { axis: 1 });
  };
  const keys = gathered('keys', 2 * layer, key);
  const values = gathered('values', 2 * layer + 1, at('value'));
  const attended = at('attended');
  const window = config.windows[layer] ?? null;
  const inputs = [query, keys, values, window === null ? 'bias' : windowBias(window)];
  const attributes = {
    q_num_heads: heads,
    kv_num_heads: kvHeads,
    // The queries are scaled already. With another scale here, ONNX Runtime packs all keys before it multiplies one query with them.
    scale: { float: 1 },
    ...(config.attentionSoftcap !== null && { softcap: { float: config.attentionSoftcap } }),
  };
  const received = at('received');
  const outputs = [
    { name: attended, type: ElementType.float32 },
    { name: received, type: ElementType.float32 },
  ];
  const noAttention = (branch: GraphBuilder) => branch.empty(received, ElementType.float32, NO_ATTENTION);
  graph.either(
    'has_segments',
    outputs,
    (branch) => [addSegmentedAttention(branch, config, layer, inputs, attributes), noAttention(branch)],
    (branch) => {
      const gathered = ['gathered-output', 'gathered-received'].map(at);
      branch.either(
        'wants_attention',
        gathered.map((name) => ({ name, type: ElementType.float32 })),
        (watched) => {
          const [output, weights] = ['watched-output', 'watched-weights'].map(at);
          // Mode 3 makes the fourth output the softmax result.
          const mode = { ...attributes, qk_matmul_output_mode: 3 };
          watched.nodeOf('Attention', inputs, [output, '', '', weights], mode);
          const heads = watched.integers([1]);
          return [output, watched.node('ReduceMean', [weights, heads], at('watched-mean'), { keepdims: 0 })];
        },
        (plain) => [plain.node('Attention', inputs, at('plain-output'), attributes), noAttention(plain)],
      );
      return gathered;
    },
  );
  return { output: attended, key, value: at('value'), received };
}

/**
 * Attention of one input per row over its gathered columns and its segments. Each part is attended to alone. The results are then weighted by the
 * parts' shares of the whole softmax, which follow from the log-sums of the parts' scores (Dao et al., Flash-Decoding, 2023).
 *
 * Nodes of the gathered columns are named `near`, those of the segments `far`. Returns [B, 1, heads × headDim].
 * @param gathered inputs of the attention over gathered columns, with the query first
 * @param attributes attributes of the same attention
 */
function addSegmentedAttention(
  graph: GraphBuilder,
  config: ModelConfig,
  layer: number,
  gathered: readonly string[],
  attributes: Readonly<Record<string, Attribute>>,
): string {
  const { heads, headDim } = config;
  const node = (
    operator: string,
    inputs: readonly string[],
    name: string,
    nodeAttributes: Record<string, Attribute> = {},
  ) => graph.node(operator, inputs, `${name}.${layer}`, nodeAttributes);
  const reshape = (value: string, dims: readonly number[], name: string) =>
    node('Reshape', [value, graph.integers(dims)], name);
  /** Attention, and the logarithm of the sum of its exponentiated scores, [rows, heads]. */
  const attend = (inputs: readonly string[], nodeAttributes: Readonly<Record<string, Attribute>>, name: string) => {
    const scores = `${name}-scores.${layer}`;
    // Mode 2 makes the fourth output the scores with the bias.
    const mode = { ...nodeAttributes, qk_matmul_output_mode: 2 };
    graph.nodeOf('Attention', inputs, [`${name}-attended.${layer}`, '', '', scores], mode);
    const logs = node('LogSoftmax', [scores], `${name}-logs`, { axis: -1 });
    // LogSoftmax is the score minus the log-sum, so the first score of a row gives the log-sum.
    const first = (value: string, result: string) =>
      node('Slice', [value, graph.integers([0]), graph.integers([1]), graph.integers([3])], `${name}-${result}`);
    const sum = node('Sub', [first(scores, 'first-score'), first(logs, 'first-log')], `${name}-log-sum-wide`);
    return { output: `${name}-attended.${layer}`, logSum: reshape(sum, [-1, heads], `${name}-log-sum`) };
  };

  const near = attend(gathered, attributes, 'near');
  const query = reshape(gathered[0], [0, heads, 1, headDim], 'query-by-head');
  const planes = [segmentInput(2 * layer), segmentInput(2 * layer + 1)];
  const far = attend([node('Gather', [query, 'segment_rows'], 'far-query'), ...planes], { scale: { float: 1 } }, 'far');

  const nearSum = reshape(near.logSum, [0, 1, heads], 'near-log-sum-part');
  const farSums = node(
    'Add',
    [node('Gather', [far.logSum, 'row_segments'], 'far-log-sums'), 'segment_bias'],
    'far-parts',
  );
  const sums = node('Concat', [nearSum, farSums], 'log-sums', { axis: 1 });
  const shares = reshape(node('Softmax', [sums], 'shares', { axis: 1 }), [0, 0, heads, 1], 'shares-wide');
  const farOutput = reshape(far.output, [0, heads, headDim], 'far-output');
  const outputs = [
    reshape(near.output, [0, 1, heads, headDim], 'near-output'),
    node('Gather', [farOutput, 'row_segments'], 'far-outputs'),
  ];
  const weighted = node('Mul', [node('Concat', outputs, 'parts', { axis: 1 }), shares], 'parts-weighted');
  const sum = node('ReduceSum', [weighted, graph.integers([1])], 'attended-by-head', { keepdims: 1 });
  return reshape(sum, [0, 1, heads * headDim], 'attended-whole');
}
