import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { headLinear, layerLinears, type QuantizedRanges, type WeightBits, WeightNodes } from './weights.ts';

/** What a graph is built for. */
export interface GraphOptions {
  readonly bits: WeightBits;
  readonly headBits: WeightBits;
  /** Rows of each plane of the pool. */
  readonly slotCount: number;
}

/**
 * The decoder as one ONNX graph: paged attention over a pool of key and value rows that the caller owns.
 *
 * Inputs, for B sequences of T tokens over W attended rows (T and W padded to the largest of the run):
 * - `tokens` int32 [B, T], `positions` int64 [B, T]: positions index `cos` and `sin`, float32 [rows, headDim / 2]
 * - `embed_rows` int64 [E, 1], `embeds` float32 [E, hidden]: rows of the flat B × T inputs that are given instead of looked up
 * - `slots` int32 [B, W]: the pool slots to gather; `fresh_at` int64 [B]: the column from which a sequence's own T keys lie over them
 * - `bias` float32 [B, 1, T, W]: 0 where an input sees a row, very negative elsewhere
 * - `pool` float32 [2 × layers × slotCount, kvHeads × headDim]: planes of keys and values, layer by layer
 * - `out_rows` int32 [R]: flat inputs whose states are wanted, R may be 0
 *
 * Outputs: `states` [R, hidden], after the final norm; `new_kv` [2 × layers × B, T, kvHeads × headDim], keys (rotated) and values of
 * the inputs in the pool's order.
 */
export function buildDecoder(
  model: LoadedModel,
  options: GraphOptions,
  quantized: ReadonlyMap<string, QuantizedRanges>,
): Uint8Array {
  const { config } = model;
  const { float32, int32, int64 } = ElementType;
  const graph = new GraphBuilder();
  const weights = new WeightNodes(graph, model, quantized);
  const { hiddenSize, headDim, layers } = config;

  graph.input('tokens', int32, ['B', 'T']);
  graph.input('positions', int64, ['B', 'T']);
  graph.input('cos', float32, ['positions', headDim / 2]);
  graph.input('sin', float32, ['positions', headDim / 2]);
  graph.input('embed_rows', int64, ['E', 1]);
  graph.input('embeds', float32, ['E', hiddenSize]);
  graph.input('slots', int32, ['B', 'W']);
  graph.input('fresh_at', int64, ['B']);
  graph.input('bias', float32, ['B', 1, 'T', 'W']);
  graph.input('pool', float32, [2 * layers * options.slotCount, kvSize(config)]);
  graph.input('out_rows', int32, ['R']);

  let x = embed(graph, weights, hiddenSize);
  const fresh: string[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const result = decoderLayer(graph, weights, config, options, layer, x);
    x = result.x;
    fresh.push(result.key, result.value);
  }
  const epsilon = { float: config.rmsNormEpsilon };
  graph.node('SimplifiedLayerNormalization', [x, weights.tensor('model.norm.weight')], 'states', { axis: -1, epsilon });
  graph.node('Concat', fresh, 'new_kv', { axis: 0 });

  graph.output('states', float32, ['R', hiddenSize]);
  graph.output('new_kv', float32, ['planes', 'T', kvSize(config)]);
  return graph.encode();
}

/**
 * The head as its own graph, so that states of any origin can be projected and a prefill that wants nothing does not pay for it.
 *
 * Inputs: `states` float32 [M, hidden], M at least 1; `top_k` int64 [1]. Outputs: `top_logits` float32 and `top_tokens` int64 [M, K],
 * largest first, equal ones by token; `log_sum` float32 [M, 1], the logarithm of the sum of all exponentiated logits.
 */
export function buildHead(
  model: LoadedModel,
  options: GraphOptions,
  quantized: ReadonlyMap<string, QuantizedRanges>,
): Uint8Array {
  const { float32, int64 } = ElementType;
  const graph = new GraphBuilder();
  const weights = new WeightNodes(graph, model, quantized);
  graph.input('states', float32, ['M', model.config.hiddenSize]);
  graph.input('top_k', int64, [1]);
  const logits = weights.multiply('states', headLinear(model.config, options.headBits));
  graph.nodeOf('TopK', [logits, 'top_k'], ['top_logits', 'top_tokens'], { axis: -1 });
  const one = graph.integers([1]);
  const largest = graph.node('Slice', ['top_logits', graph.integers([0]), one, one], 'largest');
  const powers = graph.node('Exp', [graph.node('Sub', [logits, largest], 'shifted')], 'powers');
  const sum = graph.node('ReduceSum', [powers, one], 'power-sum', { keepdims: 1 });
  graph.node('Add', [graph.node('Log', [sum], 'log-power-sum'), largest], 'log_sum');
  graph.output('top_logits', float32, ['M', 'K']);
  graph.output('top_tokens', int64, ['M', 'K']);
  graph.output('log_sum', float32, ['M', 1]);
  return graph.encode();
}

function embed(graph: GraphBuilder, weights: WeightNodes, hiddenSize: number): string {
  const looked = graph.node('Gather', [weights.tensor('model.embed_tokens.weight'), 'tokens'], 'looked-up');
  const flat = graph.node('Reshape', [looked, graph.integers([-1, hiddenSize])], 'looked-up-flat');
  const mixed = graph.node('ScatterND', [flat, 'embed_rows', 'embeds'], 'inputs-flat');
  const shape = graph.node('Shape', ['tokens'], 'inputs-shape');
  const full = graph.node('Concat', [shape, graph.integers([hiddenSize])], 'inputs-full-shape', { axis: 0 });
  return graph.node('Reshape', [mixed, full], 'inputs');
}

function decoderLayer(
  graph: GraphBuilder,
  weights: WeightNodes,
  config: ModelConfig,
  options: GraphOptions,
  layer: number,
  x: string,
): { x: string; key: string; value: string } {
  const { hiddenSize, intermediateSize, layers } = config;
  const epsilon = { float: config.rmsNormEpsilon };
  const linears = layerLinears(config, layer, options.bits);
  const tensor = (name: string) => weights.tensor(`model.layers.${layer}.${name}`);
  const at = (name: string) => `${name}.${layer}`;

  const normed = graph.node('SimplifiedLayerNormalization', [x, tensor('input_layernorm.weight')], at('normed'), {
    axis: -1,
    epsilon,
  });
  const attention = addAttention(graph, weights, config, options, layer, normed);
  let attended = attention.output;
  let residual = x;
  if (layer === layers - 1) {
    // Nothing after the last attention looks at other rows: only those that are wanted go on.
    const { heads, headDim } = config;
    const flat = graph.node('Reshape', [attended, graph.integers([-1, heads * headDim])], 'attended-flat');
    attended = graph.node('Gather', [flat, 'out_rows'], 'attended-wanted');
    const flatResidual = graph.node('Reshape', [x, graph.integers([-1, hiddenSize])], 'residual-flat');
    residual = graph.node('Gather', [flatResidual, 'out_rows'], 'residual-wanted');
  }
  const projected = weights.multiply(attended, linears.output);
  graph.nodeOf(
    'SkipSimplifiedLayerNormalization',
    [residual, projected, tensor('post_attention_layernorm.weight')],
    [at('normed-again'), '', '', at('after-attention')],
    { epsilon },
  );
  const gateUp = weights.multiply(at('normed-again'), linears.gateUp);
  const halves = graph.integers([intermediateSize, intermediateSize]);
  graph.nodeOf('Split', [gateUp, halves], [at('gate'), at('up')], { axis: -1 });
  // SiLU: QuickGelu is x × sigmoid(alpha × x).
  const activated = graph.node('QuickGelu', [at('gate')], at('activated'), { alpha: { float: 1 } });
  const gated = graph.node('Mul', [activated, at('up')], at('gated'));
  const down = weights.multiply(gated, linears.down);
  return {
    x: graph.node('Add', [at('after-attention'), down], at('x')),
    key: attention.key,
    value: attention.value,
  };
}

function addAttention(
  graph: GraphBuilder,
  weights: WeightNodes,
  config: ModelConfig,
  options: GraphOptions,
  layer: number,
  normed: string,
): { output: string; key: string; value: string } {
  const { heads, kvHeads, headDim } = config;
  const linears = layerLinears(config, layer, options.bits);
  const at = (name: string) => `${name}.${layer}`;
  const selfAttention = (name: string) => weights.tensor(`model.layers.${layer}.self_attn.${name}`);

  let qkv = weights.multiply(normed, linears.qkv);
  if (config.attentionBias) {
    const biases = ['q_proj.bias', 'k_proj.bias', 'v_proj.bias'].map(selfAttention);
    qkv = graph.node('Add', [qkv, graph.node('Concat', biases, at('qkv-bias'), { axis: 0 })], at('qkv-biased'));
  }
  const sizes = graph.integers([heads * headDim, kvHeads * headDim, kvHeads * headDim]);
  graph.nodeOf('Split', [qkv, sizes], [at('query'), at('key'), at('value')], { axis: -1 });
  const rotated = (name: 'query' | 'key', count: number) => {
    let row = at(name);
    if (config.queryKeyNorm) {
      const perHead = graph.node('Reshape', [row, graph.integers([0, 0, count, headDim])], at(`${name}-heads`));
      const norm = selfAttention(name === 'query' ? 'q_norm.weight' : 'k_norm.weight');
      const epsilon = { float: config.rmsNormEpsilon };
      graph.node('SimplifiedLayerNormalization', [perHead, norm], at(`${name}-normed`), { axis: -1, epsilon });
      row = graph.node('Reshape', [at(`${name}-normed`), graph.integers([0, 0, count * headDim])], at(`${name}-joined`));
    }
    const attributes = { interleaved: 0, num_heads: count, rotary_embedding_dim: 0 };
    return graph.node('RotaryEmbedding', [row, 'positions', 'cos', 'sin'], at(`${name}-rotated`), attributes);
  };
  const query = rotated('query', heads);
  const key = rotated('key', kvHeads);

  // The pool's rows, the columns of the inputs' own rows included, which are then overwritten in place.
  const gathered = (name: 'keys' | 'values', plane: number, fresh: string) => {
    const rows = graph.node('Add', ['slots', graph.integer32(plane * options.slotCount)], at(`${name}-rows`));
    const past = graph.node('Gather', ['pool', rows], at(`${name}-past`));
    return graph.node('TensorScatter', [past, fresh, 'fresh_at'], at(name), { axis: 1 });
  };
  const keys = gathered('keys', 2 * layer, key);
  const values = gathered('values', 2 * layer + 1, at('value'));
  const output = graph.node('Attention', [query, keys, values, 'bias'], at('attended'), {
    q_num_heads: heads,
    kv_num_heads: kvHeads,
    scale: { float: 1 / Math.sqrt(headDim) },
  });
  return { output, key, value: at('value') };
}
