import { type LoadedModel, openWeights } from '#gpu-host/models/load.ts';
import { type Activation, patchesASide, towerRows, type VisionConfig } from '#gpu-host/models/vision/config.ts';
import { expectedVisionTensors } from '#gpu-host/models/vision/tensors.ts';
import type { ImageEncoder } from '../backend.ts';
import { checkImages } from '../check.ts';
import { ElementType, GraphBuilder } from './graph-builder.ts';
import { InferenceSession, Tensor } from './library.ts';
import { floats } from './outputs.ts';
import { sessionOptions } from './sessions.ts';
import { WeightNodes } from './weights.ts';

/** A vision tower and its projector in a session of their own. */
export class OnnxImageEncoder implements ImageEncoder {
  readonly config: VisionConfig;
  readonly #session: InferenceSession;

  private constructor(config: VisionConfig, session: InferenceSession) {
    this.config = config;
    this.#session = session;
  }

  /** Opens the encoder of a model with a vision tower; undefined for other models. */
  static async open(model: LoadedModel, threads: number | undefined): Promise<OnnxImageEncoder | undefined> {
    const { vision } = model;
    if (!vision) return undefined;
    const session = await openWeights(
      model.tensors,
      expectedVisionTensors(vision),
      () => InferenceSession.create(buildVision(model, vision), sessionOptions(threads)),
      (created) => created.release(),
    );
    return new OnnxImageEncoder(vision, session);
  }

  async encode(images: readonly Uint8Array[]): Promise<readonly Float32Array[]> {
    checkImages(this.config, images);
    if (images.length === 0) return [];
    const { imageSize, embeds, embedSize } = this.config;
    const imageBytes = 3 * imageSize * imageSize;
    const pixels = new Uint8Array(images.length * imageBytes);
    images.forEach((image, i) => {
      pixels.set(image, i * imageBytes);
    });
    const shape = [images.length, imageSize, imageSize, 3];
    const result = await this.#session.run({ pixels: new Tensor('uint8', pixels, shape) });
    const allEmbeds = floats(result.embeds);
    const imageValues = embeds * embedSize;
    // Slices copy: callers keep single images' embeds, and a view would keep the whole batch in memory.
    return images.map((_, i) => allEmbeds.slice(i * imageValues, (i + 1) * imageValues));
  }

  release(): Promise<void> {
    return this.#session.release();
  }
}

/**
 * Builds a vision tower and its projector as one ONNX graph, in float32 for every width of the text model's weights.
 *
 * Input: `pixels` uint8 [B, imageSize, imageSize, 3]. Output: `embeds` float32 [B, embeds, embedSize].
 */
function buildVision(model: LoadedModel, config: VisionConfig): Uint8Array {
  const graph = new GraphBuilder();
  const { imageSize, embedSize } = config;
  graph.input('pixels', ElementType.uint8, ['B', imageSize, imageSize, 3]);
  const vision = new VisionNodes(graph, new WeightNodes(graph, model, new Map()), config);
  let row = vision.embedded('pixels');
  for (let layer = 0; layer < config.layers; layer++) row = vision.layer(`vision_tower.encoder.layers.${layer}`, row);
  graph.output(vision.projected(row), ElementType.float32, ['B', config.embeds, embedSize]);
  return graph.encode();
}

class VisionNodes {
  readonly #graph: GraphBuilder;
  readonly #weights: WeightNodes;
  readonly #config: VisionConfig;

  constructor(graph: GraphBuilder, weights: WeightNodes, config: VisionConfig) {
    this.#graph = graph;
    this.#weights = weights;
    this.#config = config;
  }

  /** One row per patch, after the class token's row (CLIP only), each with its position embedding added. */
  embedded(pixels: string): string {
    const graph = this.#graph;
    const { tower, hiddenSize, patchSize } = this.#config;
    const name = 'vision_tower.embeddings';
    const patches = patchesASide(this.#config) ** 2;
    const inputs = [this.#normalized(pixels), this.#weights.tensor(`${name}.patch_embedding.weight`)];
    if (tower === 'siglip') inputs.push(this.#weights.tensor(`${name}.patch_embedding.bias`));
    const strides = { kernel_shape: [patchSize, patchSize], strides: [patchSize, patchSize] };
    const patchGrid = graph.node('Conv', inputs, 'patches-by-place', strides);
    const flat = graph.node('Reshape', [patchGrid, graph.integers([0, hiddenSize, patches])], 'patches-flat');
    let rows = graph.node('Transpose', [flat], 'patches', { perm: [0, 2, 1] });
    if (tower === 'clip') {
      // One class row for each image; the graph does not fix the number of images.
      const token = this.#weights.tensor(`${name}.class_embedding`);
      const count = graph.node('Shape', ['pixels'], 'images', { start: 0, end: 1 });
      const shape = graph.node('Concat', [count, graph.integers([1, hiddenSize])], 'class-shape', { axis: 0 });
      rows = graph.node('Concat', [graph.node('Expand', [token, shape], 'class-rows'), rows], 'rows', { axis: 1 });
    }
    const positionEmbeddings = this.#weights.tensor(`${name}.position_embedding.weight`);
    const positioned = graph.node('Add', [rows, positionEmbeddings], 'rows-placed');
    return tower === 'clip' ? this.#norm('vision_tower.pre_layrnorm', positioned) : positioned;
  }

  layer(name: string, row: string): string {
    const graph = this.#graph;
    const attended = this.#attention(`${name}.self_attn`, this.#norm(`${name}.layer_norm1`, row));
    const afterAttention = graph.node('Add', [row, attended], `${name}:after-attention`);
    const { intermediateSize, hiddenSize, activation } = this.#config;
    const inner = this.#linear(
      `${name}.mlp.fc1`,
      this.#norm(`${name}.layer_norm2`, afterAttention),
      intermediateSize,
      hiddenSize,
    );
    const outer = this.#linear(`${name}.mlp.fc2`, this.#activated(activation, inner), hiddenSize, intermediateSize);
    return graph.node('Add', [afterAttention, outer], `${name}:after-mlp`);
  }

  projected(row: string): string {
    const graph = this.#graph;
    const { tower, hiddenSize, embedSize, projectorActivation, projectorBias, keepsClassToken } = this.#config;
    let rows = row;
    if (tower === 'clip' && !keepsClassToken) {
      const [from, to, axis] = [graph.integers([1]), graph.integers([towerRows(this.#config)]), graph.integers([1])];
      rows = graph.node('Slice', [row, from, to, axis], 'patch-rows');
    }
    const name = 'multi_modal_projector';
    const inner = this.#linear(`${name}.linear_1`, rows, embedSize, hiddenSize, projectorBias);
    const activated = this.#activated(projectorActivation, inner);
    const outer = this.#linear(`${name}.linear_2`, activated, embedSize, embedSize, projectorBias);
    return graph.node('Identity', [outer], 'embeds');
  }

  /** Bytes of pixels as the tower takes them: channels first, `(byte × scale − mean) / deviation`. */
  #normalized(pixels: string): string {
    const graph = this.#graph;
    const { scale, mean, deviation } = this.#config.preparation;
    const factors = graph.floats(
      'pixel-factors',
      Float32Array.from(deviation, (spread) => scale / spread),
      [3],
    );
    const terms = graph.floats(
      'pixel-terms',
      Float32Array.from(mean, (middle, i) => -middle / (deviation[i] ?? 1)),
      [3],
    );
    const values = graph.node('Cast', [pixels], 'pixel-values', { to: ElementType.float32 });
    const scaled = graph.node('Mul', [values, factors], 'pixels-scaled');
    const normalized = graph.node('Add', [scaled, terms], 'pixels-normalized');
    return graph.node('Transpose', [normalized], 'pixels-by-channel', { perm: [0, 3, 1, 2] });
  }

  /** Every row attends to every row. */
  #attention(name: string, row: string): string {
    const { heads, hiddenSize } = this.#config;
    const parts = ['q_proj', 'k_proj', 'v_proj'].map((part) =>
      this.#linear(`${name}.${part}`, row, hiddenSize, hiddenSize),
    );
    const attended = this.#graph.node('Attention', parts, `${name}:attended`, {
      q_num_heads: heads,
      kv_num_heads: heads,
      scale: { float: 1 / Math.sqrt(hiddenSize / heads) },
    });
    return this.#linear(`${name}.out_proj`, attended, hiddenSize, hiddenSize);
  }

  #norm(name: string, row: string): string {
    const parts = [row, this.#weights.tensor(`${name}.weight`), this.#weights.tensor(`${name}.bias`)];
    const epsilon = { float: this.#config.layerNormEpsilon };
    return this.#graph.node('LayerNormalization', parts, `${name}:${row}`, { axis: -1, epsilon });
  }

  #linear(name: string, x: string, rows: number, columns: number, hasBias = true): string {
    const product = this.#weights.multiply(x, { name, parts: [`${name}.weight`], rows, columns, bits: 32 });
    if (!hasBias) return product;
    return this.#graph.node('Add', [product, this.#weights.tensor(`${name}.bias`)], `${name}:biased`);
  }

  #activated(activation: Activation, x: string): string {
    const name = `${x}:activated`;
    switch (activation) {
      case 'quick-gelu':
        return this.#graph.node('QuickGelu', [x], name, { alpha: { float: 1.702 } });
      case 'gelu':
        return this.#graph.node('Gelu', [x], name);
      case 'gelu-tanh':
        return this.#graph.node('Gelu', [x], name, { approximate: 'tanh' });
    }
  }
}
