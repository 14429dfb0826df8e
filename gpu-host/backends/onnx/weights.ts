import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel, TensorStore } from '#gpu-host/models/load.ts';
import { ElementType, type ElementTypeNumber, type FileRange, type GraphBuilder } from './graph-builder.ts';

/** Width of a weight as stored and multiplied: float32, or blocks of 8 or 4 bits with a float32 scale each. */
export type WeightBits = 32 | 8 | 4;

/** Weights that share a scale. 64 is up to 1.25 times faster than 32 on the CPU provider. */
export const BLOCK_SIZE = 64;

/** One matrix multiplication: the rows of `parts`, stacked, times an input of `columns` values. */
export interface LinearLayer {
  readonly name: string;
  /** Tensor names of `[rows, columns]` matrices. */
  readonly parts: readonly string[];
  readonly rows: number;
  readonly columns: number;
  readonly bits: WeightBits;
}

/** The matrix multiplications of one decoder layer. Projections of the same input are stacked into one, 5 % faster for a single row. */
export function layerLinears(config: ModelConfig, layer: number, bits: WeightBits) {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = config;
  const make = (name: string, projections: readonly string[], rows: number, columns: number): LinearLayer => ({
    name: `${name}.${layer}`,
    parts: projections.map((projection) => `model.layers.${layer}.${projection}.weight`),
    rows,
    columns,
    bits,
  });
  return {
    qkv: make(
      'qkv',
      ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
      (heads + 2 * kvHeads) * headDim,
      hiddenSize,
    ),
    output: make('attention-output', ['self_attn.o_proj'], hiddenSize, heads * headDim),
    gateUp: make('gate-up', ['mlp.gate_proj', 'mlp.up_proj'], 2 * intermediateSize, hiddenSize),
    down: make('down', ['mlp.down_proj'], hiddenSize, intermediateSize),
  };
}

/** The multiplication from states to logits; its weights are the embedding table when the model ties the two. */
export function headLinear(config: ModelConfig, bits: WeightBits): LinearLayer {
  const part = config.tiedEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight';
  return { name: 'head', parts: [part], rows: config.vocabularySize, columns: config.hiddenSize, bits };
}

/** All multiplications of a model whose weights are stored quantised, in a fixed order. */
export function quantizedLinears(config: ModelConfig, bits: WeightBits, headBits: WeightBits): LinearLayer[] {
  const linears: LinearLayer[] = [];
  for (let layer = 0; layer < config.layers; layer++) linears.push(...Object.values(layerLinears(config, layer, bits)));
  linears.push(headLinear(config, headBits));
  return linears.filter((linear) => linear.bits !== 32);
}

/** Place of a quantised layer: `values` is `[rows, blocks, BLOCK_SIZE × bits / 8]`, `scales` is `[rows × blocks]`. */
export interface QuantizedRanges {
  readonly values: FileRange;
  readonly scales: FileRange;
}

/** Adds weights and their multiplications to a graph; the bytes stay in the model's own files or in the cache's file. */
export class WeightNodes {
  readonly #graph: GraphBuilder;
  readonly #tensors: TensorStore;
  readonly #quantized: ReadonlyMap<string, QuantizedRanges>;

  constructor(
    graph: GraphBuilder,
    model: Pick<LoadedModel, 'tensors'>,
    quantized: ReadonlyMap<string, QuantizedRanges>,
  ) {
    this.#graph = graph;
    this.#tensors = model.tensors;
    this.#quantized = quantized;
  }

  /** A whole tensor as float32. The session widens a narrower tensor once, when it folds constants. */
  tensor(name: string): string {
    const { dtype, shape, file, offset, bytes } = this.#tensors.info(name);
    if (dtype === 'F32') return this.#graph.external(name, ElementType.float32, shape, { file, offset, bytes });
    const type: ElementTypeNumber = dtype === 'F16' ? ElementType.float16 : ElementType.bfloat16;
    const widened = `${name}:float32`;
    if (!this.#widened.has(widened)) {
      const stored = this.#graph.external(name, type, shape, { file, offset, bytes });
      this.#graph.node('Cast', [stored], widened, { to: ElementType.float32 });
      this.#widened.add(widened);
    }
    return widened;
  }

  readonly #widened = new Set<string>();

  /** `[…, columns] → […, rows]`. Hugging Face stores one row per output, hence the transposed right side. */
  multiply(x: string, linear: LinearLayer): string {
    if (linear.bits !== 32) return this.#multiplyQuantized(x, linear);
    const parts = linear.parts.map((part) => this.tensor(part));
    const weight =
      parts.length === 1 ? parts[0] : this.#graph.node('Concat', parts, `${linear.name}:weight`, { axis: 0 });
    return this.#graph.node('FusedMatMul', [x, weight], linear.name, { transB: 1, alpha: { float: 1 } });
  }

  #multiplyQuantized(x: string, { name, rows, columns, bits }: LinearLayer): string {
    const ranges = this.#quantized.get(name);
    if (ranges === undefined) throw new Error(`No quantised weights were made for ${name}.`);
    const blocks = Math.ceil(columns / BLOCK_SIZE);
    const blockBytes = (BLOCK_SIZE * bits) / 8;
    const values = this.#graph.external(`${name}:values`, ElementType.uint8, [rows, blocks, blockBytes], ranges.values);
    const scales = this.#graph.external(`${name}:scales`, ElementType.float32, [rows * blocks], ranges.scales);
    // Level 4 multiplies in int8; lower levels are up to 180 times slower on the CPU provider.
    const attributes = { K: columns, N: rows, bits, block_size: BLOCK_SIZE, accuracy_level: 4 };
    return this.#graph.node('MatMulNBits', [x, values, scales], name, attributes);
  }
}
