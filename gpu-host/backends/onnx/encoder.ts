import type { EncoderActivation, EncoderConfig } from '#gpu-host/models/encoder/config.ts';
import type { LoadedEncoder } from '#gpu-host/models/encoder/load.ts';
import { headNames } from '../../models/encoder/load.ts';
import type { Encoder, EncoderInput } from '../encoder.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { InferenceSession, Tensor } from './library.ts';
import { floats } from './outputs.ts';
import { sessionOptions } from './sessions.ts';
import { WeightNodes } from './weights.ts';

/** Runs a text encoder on the CPU, in an ONNX Runtime session of its own. */
export class OnnxEncoder implements Encoder {
  readonly config: EncoderConfig;
  readonly #session: InferenceSession;

  private constructor(config: EncoderConfig, session: InferenceSession) {
    this.config = config;
    this.#session = session;
  }

  static async open(model: LoadedEncoder, { threads }: { readonly threads?: number } = {}): Promise<OnnxEncoder> {
    return new OnnxEncoder(model.config, await InferenceSession.create(buildEncoder(model), sessionOptions(threads)));
  }

  async encode(inputs: readonly EncoderInput[]): Promise<readonly Float32Array[]> {
    if (inputs.length === 0) return [];
    const width = Math.max(...inputs.map(({ tokens }) => tokens.length));
    const shape = [inputs.length, width];
    const tokens = new Int32Array(inputs.length * width);
    const types = new Int32Array(inputs.length * width);
    inputs.forEach((input, row) => {
      tokens.set(input.tokens, row * width);
      types.set(input.types, row * width);
    });
    const lengths = Int32Array.from(inputs, (input) => input.tokens.length);
    const { results } = await this.#session.run({
      tokens: new Tensor('int32', tokens, shape),
      types: new Tensor('int32', types, shape),
      lengths: new Tensor('int32', lengths, [inputs.length, 1]),
    });
    const values = floats(results);
    const size = values.length / inputs.length;
    return inputs.map((_, row) => values.slice(row * size, (row + 1) * size));
  }

  dispose(): Promise<void> {
    return this.#session.release();
  }
}

/**
 * Builds an encoder of the BERT family as one ONNX graph in float32. Shorter inputs of a batch are padded at the end.
 *
 * Inputs: `tokens` and `types` int32 [B, T], `lengths` int32 [B, 1]. Output: `results` float32, [B, hiddenSize] for embeddings, [B, 1] for the
 * scores of a reranker.
 */
export function buildEncoder({ config, tensors }: LoadedEncoder): Uint8Array {
  const graph = new GraphBuilder();
  graph.input('tokens', ElementType.int32, ['B', 'T']);
  graph.input('types', ElementType.int32, ['B', 'T']);
  graph.input('lengths', ElementType.int32, ['B', 1]);
  const nodes = new EncoderNodes(graph, new WeightNodes(graph, { tensors }, new Map()), config);
  const { head, hiddenSize } = config;
  const rows = config.family === 'modernbert' ? modernStates(graph, nodes, config) : bertStates(graph, nodes, config);
  const results = head.kind === 'reranker' ? rerankerScores(graph, nodes, rows, config) : nodes.vector(rows, head);
  graph.node('Identity', [results], 'results');
  graph.output('results', ElementType.float32, ['B', head.kind === 'reranker' ? 1 : hiddenSize]);
  return graph.encode();
}

type Bert = Extract<EncoderConfig, { family: 'bert' | 'roberta' }>;

/** Adds the layers of BERT, and returns the last states, [B, T, hiddenSize]. */
function bertStates(graph: GraphBuilder, nodes: EncoderNodes, config: Bert): string {
  const { hiddenSize, intermediateSize, activation, firstPosition } = config;
  const table = (name: string) => nodes.weight(`embeddings.${name}.weight`);
  const words = graph.node('Gather', [table('word_embeddings'), 'tokens'], 'words', { axis: 0 });
  const types = graph.node('Gather', [table('token_type_embeddings'), 'types'], 'segments', { axis: 0 });
  const positionRows = graph.node('Add', [nodes.tokenIndices, graph.integer32(firstPosition)], 'position-rows');
  const positions = graph.node('Gather', [table('position_embeddings'), positionRows], 'positions', { axis: 0 });
  const sum = graph.node('Add', [graph.node('Add', [words, types], 'words-segments'), positions], 'embedded');
  let rows = nodes.norm('embeddings.LayerNorm', sum);
  for (let layer = 0; layer < config.layers; layer++) {
    const name = `encoder.layer.${layer}`;
    const attention = `${name}.attention`;
    const parts = ['query', 'key', 'value'].map((part) =>
      nodes.linear(`${attention}.self.${part}`, rows, hiddenSize, hiddenSize),
    );
    const states = nodes.attend(`${attention}:states`, parts, nodes.mask);
    const output = nodes.linear(`${attention}.output.dense`, states, hiddenSize, hiddenSize);
    const attended = graph.node('Add', [rows, output], `${name}:attended`);
    const attendedNormed = nodes.norm(`${attention}.output.LayerNorm`, attended);
    const inner = nodes.linear(`${name}.intermediate.dense`, attendedNormed, intermediateSize, hiddenSize);
    const active = nodes.activated(inner, activation);
    const outer = nodes.linear(`${name}.output.dense`, active, hiddenSize, intermediateSize);
    rows = nodes.norm(`${name}.output.LayerNorm`, graph.node('Add', [attendedNormed, outer], `${name}:added`));
  }
  return rows;
}

/** [B, 1]: the logit of the reranker's only label. */
function rerankerScores(graph: GraphBuilder, nodes: EncoderNodes, rows: string, config: EncoderConfig): string {
  if (config.family === 'modernbert') return modernScore(nodes, nodes.pooled(rows, config.scorePooling), config);
  const { family, hiddenSize } = config;
  const { dense, score } = headNames(family);
  const inner = nodes.linear(dense, nodes.pooled(rows, 'first'), hiddenSize, hiddenSize);
  return nodes.linear(score, graph.node('Tanh', [inner], 'head-activated'), 1, hiddenSize);
}

/** Graph nodes that the BERT and ModernBERT encoders share. */
export class EncoderNodes {
  /** int32 [T]: the index of each token in its input: 0, 1, … */
  readonly tokenIndices: string;
  /** boolean [B, 1, T, T]: the keys that each token may see. */
  readonly mask: string;
  readonly #graph: GraphBuilder;
  readonly #weights: WeightNodes;
  readonly #config: EncoderConfig;
  /** boolean [B, T]: true at the tokens of the input, false at padding. */
  readonly #isToken: string;

  constructor(graph: GraphBuilder, weights: WeightNodes, config: EncoderConfig) {
    this.#graph = graph;
    this.#weights = weights;
    this.#config = config;
    const width = graph.node('Shape', ['tokens'], 'width', { start: 1, end: 2 });
    const end = graph.node('Cast', [graph.node('Squeeze', [width], 'width-scalar')], 'width-32', {
      to: ElementType.int32,
    });
    const [zero, one] = [0, 1].map((value) => graph.node('Squeeze', [graph.integer32(value)], `scalar:${value}`)) as [
      string,
      string,
    ];
    this.tokenIndices = graph.node('Range', [zero, end, one], 'places');
    this.#isToken = graph.node('Less', [this.tokenIndices, 'lengths'], 'is-token');
    const count = graph.node('Shape', ['tokens'], 'count', { start: 0, end: 1 });
    const shape = graph.node('Concat', [count, graph.integers([1]), width, width], 'mask-shape', { axis: 0 });
    const keys = graph.node('Unsqueeze', [this.#isToken, graph.integers([1, 2])], 'visible-keys');
    this.mask = graph.node('Expand', [keys, shape], 'mask');
  }

  weight(name: string): string {
    return this.#weights.tensor(name);
  }

  /** The embedding of each input, [B, hiddenSize], from the states of its tokens. */
  vector(rows: string, { pooling, normalizes }: Extract<EncoderConfig['head'], { kind: 'embedding' }>): string {
    const vector = this.pooled(rows, pooling);
    return normalizes ? this.#graph.node('LpNormalization', [vector], 'unit-vectors', { axis: -1, p: 2 }) : vector;
  }

  /** [B, hiddenSize]: the state of each input's first token, or the mean of its tokens' states. */
  pooled(rows: string, pooling: 'first' | 'mean'): string {
    return pooling === 'first' ? this.#first(rows) : this.#mean(rows);
  }

  #first(rows: string): string {
    const graph = this.#graph;
    return graph.node(
      'Squeeze',
      [
        graph.node('Slice', [rows, graph.integers([0]), graph.integers([1]), graph.integers([1])], 'first-rows'),
        graph.integers([1]),
      ],
      'first',
    );
  }

  #mean(rows: string): string {
    const graph = this.#graph;
    const tokenWeights = graph.node('Cast', [this.#isToken], 'counted', { to: ElementType.float32 });
    const weights = graph.node('Unsqueeze', [tokenWeights, graph.integers([2])], 'counted-rows');
    const sum = graph.node(
      'ReduceSum',
      [graph.node('Mul', [rows, weights], 'token-rows'), graph.integers([1])],
      'sum',
      {
        keepdims: 0,
      },
    );
    const count = graph.node('Cast', ['lengths'], 'lengths-float', { to: ElementType.float32 });
    return graph.node('Div', [sum, count], 'mean');
  }

  /** Adds attention. `parts` are the queries, keys and values; they and the result are [B, T, hiddenSize]. */
  attend(name: string, parts: readonly string[], mask: string): string {
    const { heads, hiddenSize } = this.#config;
    return this.#graph.node('Attention', [...parts, mask], name, {
      q_num_heads: heads,
      kv_num_heads: heads,
      scale: { float: 1 / Math.sqrt(hiddenSize / heads) },
    });
  }

  activated(x: string, activation: EncoderActivation): string {
    const name = `${x}:activated`;
    if (activation === 'relu') return this.#graph.node('Relu', [x], name);
    return this.#graph.node('Gelu', [x], name, activation === 'gelu-tanh' ? { approximate: 'tanh' } : {});
  }

  /** A norm; with a bias for BERT, without one for ModernBERT. */
  norm(name: string, rows: string): string {
    const bias = this.#config.family === 'modernbert' ? [] : [this.weight(`${name}.bias`)];
    const epsilon = { float: this.#config.layerNormEpsilon };
    const parts = [rows, this.weight(`${name}.weight`), ...bias];
    return this.#graph.node('LayerNormalization', parts, `${name}:normalised`, { axis: -1, epsilon });
  }

  /** A multiplication without bias. */
  multiply(name: string, x: string, rows: number, columns: number): string {
    return this.#weights.multiply(x, { name, parts: [`${name}.weight`], rows, columns, bits: 32 });
  }

  linear(name: string, x: string, rows: number, columns: number): string {
    return this.#graph.node(
      'Add',
      [this.multiply(name, x, rows, columns), this.weight(`${name}.bias`)],
      `${name}:biased`,
    );
  }
}

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
