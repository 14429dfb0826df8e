import type { EncoderActivation, EncoderConfig } from '#gpu-host/models/encoder/config.ts';
import type { EncoderNodes } from './encoder-graph.ts';
import type { GraphBuilder } from './graph-builder.ts';

type ModernBert = Extract<EncoderConfig, { family: 'modernbert' }>;

/** Adds the layers of ModernBERT, and returns the last states, [B, T, hiddenSize]. */
export function modernStates(graph: GraphBuilder, nodes: EncoderNodes, config: ModernBert): string {
  const { heads, hiddenSize, intermediateSize, activation, contextLength, thetas, window } = config;
  const words = graph.node('Gather', [nodes.weight('embeddings.tok_embeddings.weight'), 'tokens'], 'words', {
    axis: 0,
  });
  const startPosition = graph.integers([0]);
  const tables = (kind: keyof typeof thetas): [string, string] => {
    const { cos, sin } = rotations(contextLength, hiddenSize / heads, thetas[kind]);
    const dims = [contextLength, hiddenSize / heads / 2];
    return [graph.floats(`${kind}:cos`, cos, dims), graph.floats(`${kind}:sin`, sin, dims)];
  };
  const fullAttention = { mask: nodes.mask, tables: tables('all') };
  const nearAttention = { mask: nearMask(graph, nodes, window), tables: tables('near') };
  const rotated = (name: string, row: string, rotaryTables: [string, string]) =>
    graph.node('RotaryEmbedding', [row, startPosition, ...rotaryTables], `${name}-rotated`, {
      interleaved: 0,
      num_heads: heads,
      rotary_embedding_dim: 0,
    });
  let rows = nodes.norm('embeddings.norm', words);
  for (let layer = 0; layer < config.layers; layer++) {
    const name = `layers.${layer}`;
    const { mask, tables: layerTables } = config.seesAll[layer] ? fullAttention : nearAttention;
    const attentionInput = layer === 0 ? rows : nodes.norm(`${name}.attn_norm`, rows);
    const parts = ['query', 'key', 'value'].map((part) => `${name}:${part}`) as [string, string, string];
    const qkv = nodes.multiply(`${name}.attn.Wqkv`, attentionInput, 3 * hiddenSize, hiddenSize);
    graph.nodeOf('Split', [qkv], parts, { axis: -1, num_outputs: 3 });
    const [query, key, value] = parts;
    const states = nodes.attend(
      `${name}:states`,
      [rotated(query, query, layerTables), rotated(key, key, layerTables), value],
      mask,
    );
    const attended = nodes.multiply(`${name}.attn.Wo`, states, hiddenSize, hiddenSize);
    rows = graph.node('Add', [rows, attended], `${name}:attended`);
    const halves = [`${name}:inner`, `${name}:gate`] as [string, string];
    const mlpInput = nodes.norm(`${name}.mlp_norm`, rows);
    const innerAndGate = nodes.multiply(`${name}.mlp.Wi`, mlpInput, 2 * intermediateSize, hiddenSize);
    graph.nodeOf('Split', [innerAndGate], halves, { axis: -1, num_outputs: 2 });
    const active = nodes.activated(halves[0], activation);
    const gated = graph.node('Mul', [active, halves[1]], `${name}:gated`);
    const mlpOutput = nodes.multiply(`${name}.mlp.Wo`, gated, hiddenSize, intermediateSize);
    rows = graph.node('Add', [rows, mlpOutput], `${name}:added`);
  }
  return nodes.norm('final_norm', rows);
}

/** Adds the head of a reranker on pooled states, and returns the scores, [B, 1]. */
export function modernScore(nodes: EncoderNodes, pooled: string, { hiddenSize }: ModernBert): string {
  const activation: EncoderActivation = 'gelu';
  const dense = nodes.multiply('head.dense', pooled, hiddenSize, hiddenSize);
  return nodes.linear('classifier', nodes.norm('head.norm', nodes.activated(dense, activation)), 1, hiddenSize);
}

/** boolean [B, 1, T, T]: true for the keys that a token may see and that are at most `window` tokens away. */
function nearMask(graph: GraphBuilder, nodes: EncoderNodes, window: number): string {
  const column = graph.node('Unsqueeze', [nodes.tokenIndices, graph.integers([1])], 'places-column');
  const distance = graph.node('Abs', [graph.node('Sub', [column, nodes.tokenIndices], 'offsets')], 'distances');
  const isNear = graph.node('LessOrEqual', [distance, graph.integer32(window)], 'is-near');
  return graph.node('And', [nodes.mask, isNear], 'near-mask');
}

/** Cosines and sines of the rotation (Su et al., 2021), [positions, size / 2]. */
function rotations(positions: number, size: number, theta: number) {
  const half = size / 2;
  const [cos, sin] = [new Float32Array(positions * half), new Float32Array(positions * half)];
  for (let i = 0; i < half; i++) {
    const frequency = theta ** ((-2 * i) / size);
    for (let position = 0; position < positions; position++) {
      cos[position * half + i] = Math.cos(position * frequency);
      sin[position * half + i] = Math.sin(position * frequency);
    }
  }
  return { cos, sin };
}
