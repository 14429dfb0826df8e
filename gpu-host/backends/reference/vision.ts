import type { LoadedModel, TensorStore } from '#gpu-host/models/load.ts';
import { type Activation, patchesASide, type VisionConfig } from '#gpu-host/models/vision/config.ts';
import type { ImageEncoder } from '../backend.ts';
import { checkImages } from '../check.ts';
import { attentionWeights, layerNorm, linear, silu, weightedSum } from './math.ts';

type Rows = readonly Float64Array[];

/**
 * A CLIP or SigLIP tower (Radford et al., 2021; Zhai et al., 2023) and LLaVA's projector in plain float64, one row at a time: the oracle of
 * the other backends. It reads weights at each use, because speed does not matter here.
 */
export class ReferenceImageEncoder implements ImageEncoder {
  readonly config: VisionConfig;
  readonly #tensors: TensorStore;

  constructor(config: VisionConfig, tensors: TensorStore) {
    this.config = config;
    this.#tensors = tensors;
  }

  /** Makes the encoder of a model with a vision tower; undefined for other models. */
  static of({ vision, tensors }: LoadedModel): ReferenceImageEncoder | undefined {
    return vision && new ReferenceImageEncoder(vision, tensors);
  }

  async encode(images: readonly Uint8Array[]): Promise<readonly Float32Array[]> {
    checkImages(this.config, images);
    return images.map((image) => this.#encode(image));
  }

  #encode(image: Uint8Array): Float32Array {
    const { tower, layers, keepsClassToken, projectorActivation, embedSize } = this.config;
    let rows: Rows = this.#embedded(image);
    for (let layer = 0; layer < layers; layer++) rows = this.#layer(`vision_tower.encoder.layers.${layer}`, rows);
    if (tower === 'clip' && !keepsClassToken) rows = rows.slice(1);
    const inner = this.#linear('multi_modal_projector.linear_1', rows).map((row) =>
      activated(projectorActivation, row),
    );
    const embeds = new Float32Array(rows.length * embedSize);
    this.#linear('multi_modal_projector.linear_2', inner).forEach((row, i) => {
      embeds.set(row, i * embedSize);
    });
    return embeds;
  }

  /** One row per patch, after the class token's row (CLIP only), each with its position embedding added. */
  #embedded(image: Uint8Array): Rows {
    const { tower, hiddenSize } = this.config;
    const name = 'vision_tower.embeddings';
    const weight = this.#tensors.read(`${name}.patch_embedding.weight`);
    const bias = tower === 'siglip' ? this.#tensors.read(`${name}.patch_embedding.bias`) : null;
    const patches = this.#patches(image).map((patch) => linear(weight, patch, bias));
    const classRow = tower === 'clip' ? [Float64Array.from(this.#tensors.read(`${name}.class_embedding`))] : [];
    const positionEmbeddings = this.#tensors.read(`${name}.position_embedding.weight`);
    const rows = [...classRow, ...patches].map((row, i) =>
      row.map((value, k) => value + positionEmbeddings[i * hiddenSize + k]),
    );
    return tower === 'clip' ? this.#norm('vision_tower.pre_layrnorm', rows) : rows;
  }

  /** Normalised pixels of each patch, patches row by row. A patch holds all of red, then green, then blue, in the weights' order. */
  #patches(image: Uint8Array): Rows {
    const { imageSize, patchSize, preparation } = this.config;
    const { scale, mean, deviation } = preparation;
    const side = patchesASide(this.config);
    return Array.from({ length: side * side }, (_, patch) => {
      const top = Math.floor(patch / side) * patchSize;
      const left = (patch % side) * patchSize;
      return Float64Array.from({ length: 3 * patchSize * patchSize }, (_, i) => {
        const channel = Math.floor(i / (patchSize * patchSize));
        const y = top + (Math.floor(i / patchSize) % patchSize);
        const x = left + (i % patchSize);
        return (image[(y * imageSize + x) * 3 + channel] * scale - mean[channel]) / deviation[channel];
      });
    });
  }

  #layer(name: string, rows: Rows): Rows {
    const attended = sum(rows, this.#attention(`${name}.self_attn`, this.#norm(`${name}.layer_norm1`, rows)));
    const inner = this.#linear(`${name}.mlp.fc1`, this.#norm(`${name}.layer_norm2`, attended));
    const { activation } = this.config;
    return sum(
      attended,
      this.#linear(
        `${name}.mlp.fc2`,
        inner.map((row) => activated(activation, row)),
      ),
    );
  }

  /** Every row attends to every row. */
  #attention(name: string, rows: Rows): Rows {
    const { heads, hiddenSize } = this.config;
    const headDim = hiddenSize / heads;
    const scoring = { scale: 1 / Math.sqrt(headDim), cap: null, sink: undefined };
    const [queries, keys, values] = ['q_proj', 'k_proj', 'v_proj'].map((part) => this.#linear(`${name}.${part}`, rows));
    const joined = rows.map((_, i) => {
      const row = new Float64Array(hiddenSize);
      for (let start = 0; start < hiddenSize; start += headDim) {
        const head = (vector: Float64Array) => vector.subarray(start, start + headDim);
        const weights = attentionWeights(head(queries[i]), keys.map(head), scoring);
        row.set(weightedSum(weights, values.map(head), headDim), start);
      }
      return row;
    });
    return this.#linear(`${name}.out_proj`, joined);
  }

  #norm(name: string, rows: Rows): Rows {
    const weight = this.#tensors.read(`${name}.weight`);
    const bias = this.#tensors.read(`${name}.bias`);
    return rows.map((row) => layerNorm(row, weight, bias, this.config.layerNormEpsilon));
  }

  #linear(name: string, rows: Rows): Rows {
    const weight = this.#tensors.read(`${name}.weight`);
    const bias = this.#tensors.has(`${name}.bias`) ? this.#tensors.read(`${name}.bias`) : null;
    return rows.map((row) => linear(weight, row, bias));
  }
}

function activated(activation: Activation, row: Float64Array): Float64Array {
  switch (activation) {
    case 'quick-gelu':
      return row.map((x) => silu(1.702 * x) / 1.702);
    case 'gelu':
      return row.map((x) => (x * (1 + erf(x / Math.SQRT2))) / 2);
    case 'gelu-tanh':
      return row.map((x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2);
  }
}

/** The error function: its series near zero, its continued fraction away from it (Abramowitz and Stegun, 7.1.6 and 7.1.14). */
function erf(x: number): number {
  const magnitude = Math.abs(x);
  const scale = Math.exp(-magnitude * magnitude) / Math.sqrt(Math.PI);
  let value: number;
  if (magnitude < 3) {
    let term = magnitude;
    let total = 0;
    for (let n = 0; n < 80; n++) {
      total += term;
      term *= (2 * magnitude * magnitude) / (2 * n + 3);
    }
    value = 2 * scale * total;
  } else {
    let fraction = 0;
    for (let n = 60; n > 0; n--) fraction = n / 2 / (magnitude + fraction);
    value = 1 - scale / (magnitude + fraction);
  }
  return x < 0 ? -value : value;
}

function sum(a: Rows, b: Rows): Rows {
  return a.map((row, i) => row.map((value, k) => value + b[i][k]));
}
