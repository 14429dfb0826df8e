import type { EncoderConfig } from '#gpu-host/models/encoder/config.ts';
import type { LoadedEncoder } from '#gpu-host/models/encoder/load.ts';
import { headNames } from '#gpu-host/models/encoder/tensors.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { WeightNodes } from './weights.ts';

/**
 * An encoder of the BERT family as one ONNX graph in float32. Shorter inputs of a batch are padded at the end.
 *
 * Inputs: `tokens` and `types` int32 [B, T], `lengths` int32 [B, 1]. Output: `results` float32, [B, hiddenSize] for embeddings, [B, 1] for the
 * scores of a reranker.
 */
export function buildEncoder({ config, tensors }: LoadedEncoder): Uint8Array {
  const graph = new GraphBuilder();
  graph.input('tokens', ElementType.int32, ['B', 'T']);
  graph.input('types', ElementType.int32, ['B', 'T']);
  graph.input('lengths', ElementType.int32, ['B', 1]);
  const encoder = new EncoderNodes(graph, new WeightNodes(graph, { tensors }, new Map()), config);
  let rows = encoder.embedded();
  for (let layer = 0; layer < config.layers; layer++) rows = encoder.layer(`encoder.layer.${layer}`, rows);
  const { head, hiddenSize } = config;
  const results = head.kind === 'reranker' ? encoder.scored(rows) : encoder.pooled(rows, head);
  graph.node('Identity', [results], 'results');
  graph.output('results', ElementType.float32, ['B', head.kind === 'reranker' ? 1 : hiddenSize]);
  return graph.encode();
}

class EncoderNodes {
  readonly #graph: GraphBuilder;
  readonly #weights: WeightNodes;
  readonly #config: EncoderConfig;
  /** int32 [T]: 0, 1, … */
  readonly #places: string;
  /** boolean [B, T]: true at the tokens of the input, false at padding. */
  readonly #isToken: string;
  /** boolean [B, 1, T, T]: the keys that each token may see. */
  readonly #mask: string;

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
    this.#places = graph.node('Range', [zero, end, one], 'places');
    this.#isToken = graph.node('Less', [this.#places, 'lengths'], 'is-token');
    const count = graph.node('Shape', ['tokens'], 'count', { start: 0, end: 1 });
    const shape = graph.node('Concat', [count, graph.integers([1]), width, width], 'mask-shape', { axis: 0 });
    const keys = graph.node('Unsqueeze', [this.#isToken, graph.integers([1, 2])], 'visible-keys');
    this.#mask = graph.node('Expand', [keys, shape], 'mask');
  }

  /** The sum of each token's word, segment and position embeddings, normalised. */
  embedded(): string {
    const graph = this.#graph;
    const table = (name: string) => this.#weights.tensor(`embeddings.${name}.weight`);
    const words = graph.node('Gather', [table('word_embeddings'), 'tokens'], 'words', { axis: 0 });
    const types = graph.node('Gather', [table('token_type_embeddings'), 'types'], 'segments', { axis: 0 });
    const rows = graph.node('Add', [this.#places, graph.integer32(this.#config.firstPosition)], 'position-rows');
    const places = graph.node('Gather', [table('position_embeddings'), rows], 'positions', { axis: 0 });
    const sum = graph.node('Add', [graph.node('Add', [words, types], 'words-segments'), places], 'embedded');
    return this.#norm('embeddings.LayerNorm', sum);
  }

  layer(name: string, rows: string): string {
    const graph = this.#graph;
    const { hiddenSize, intermediateSize, activation } = this.#config;
    const attended = graph.node('Add', [rows, this.#attention(`${name}.attention`, rows)], `${name}:attended`);
    const between = this.#norm(`${name}.attention.output.LayerNorm`, attended);
    const inner = this.#linear(`${name}.intermediate.dense`, between, intermediateSize, hiddenSize);
    const activated =
      activation === 'relu'
        ? graph.node('Relu', [inner], `${name}:activated`)
        : graph.node('Gelu', [inner], `${name}:activated`, {
            ...(activation === 'gelu-tanh' && { approximate: 'tanh' }),
          });
    const outer = this.#linear(`${name}.output.dense`, activated, hiddenSize, intermediateSize);
    return this.#norm(`${name}.output.LayerNorm`, graph.node('Add', [between, outer], `${name}:added`));
  }

  /** [B, hiddenSize] from the states of all tokens. */
  pooled(rows: string, { pooling, normalizes }: Extract<EncoderConfig['head'], { kind: 'embedding' }>): string {
    const vector = pooling === 'first' ? this.#first(rows) : this.#mean(rows);
    return normalizes ? this.#graph.node('LpNormalization', [vector], 'unit-vectors', { axis: -1, p: 2 }) : vector;
  }

  /** [B, 1]: the logit of the reranker's only label. */
  scored(rows: string): string {
    const { family, hiddenSize } = this.#config;
    const { dense, score } = headNames(family);
    const inner = this.#linear(dense, this.#first(rows), hiddenSize, hiddenSize);
    return this.#linear(score, this.#graph.node('Tanh', [inner], 'head-activated'), 1, hiddenSize);
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
    const counted = graph.node('Cast', [this.#isToken], 'counted', { to: ElementType.float32 });
    const weights = graph.node('Unsqueeze', [counted, graph.integers([2])], 'counted-rows');
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

  #attention(name: string, rows: string): string {
    const { heads, hiddenSize } = this.#config;
    const parts = ['query', 'key', 'value'].map((part) =>
      this.#linear(`${name}.self.${part}`, rows, hiddenSize, hiddenSize),
    );
    const attended = this.#graph.node('Attention', [...parts, this.#mask], `${name}:states`, {
      q_num_heads: heads,
      kv_num_heads: heads,
      scale: { float: 1 / Math.sqrt(hiddenSize / heads) },
    });
    return this.#linear(`${name}.output.dense`, attended, hiddenSize, hiddenSize);
  }

  #norm(name: string, rows: string): string {
    const parts = [rows, this.#weights.tensor(`${name}.weight`), this.#weights.tensor(`${name}.bias`)];
    const epsilon = { float: this.#config.layerNormEpsilon };
    return this.#graph.node('LayerNormalization', parts, `${name}:normalised`, { axis: -1, epsilon });
  }

  #linear(name: string, x: string, rows: number, columns: number): string {
    const product = this.#weights.multiply(x, { name, parts: [`${name}.weight`], rows, columns, bits: 32 });
    return this.#graph.node('Add', [product, this.#weights.tensor(`${name}.bias`)], `${name}:biased`);
  }
}
