import { z } from 'zod';
import type { ModelConfig } from '../config.ts';
import { issueText, ModelError } from '../errors.ts';
import { splitLlava } from './llava.ts';
import { type ImagePreparation, parsePreparation } from './preparation.ts';

/** A vision tower and its projector, which turn an image into embeds of the text model (LLaVA 1.5: Liu et al., 2023, section 3). */
export interface VisionConfig {
  /** A CLIP tower has a class token and a norm before its first layer; a SigLIP tower has a bias on its patches. */
  readonly tower: 'clip' | 'siglip';
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly heads: number;
  /** Number of computed layers: all layers up to the one whose output the projector takes. */
  readonly layers: number;
  /** Side of the square image, pixels. */
  readonly imageSize: number;
  /** Side of a patch, pixels. */
  readonly patchSize: number;
  readonly activation: Activation;
  readonly layerNormEpsilon: number;
  /** True when the class token's row is one of the embeds. */
  readonly keepsClassToken: boolean;
  readonly projectorActivation: Activation;
  readonly projectorBias: boolean;
  /** Values of an embed: the text model's hidden size. */
  readonly embedSize: number;
  /** Embeds of one image. */
  readonly embeds: number;
  /** Id of the token that stands for an image in a text (LLaVA: `<image>`); null when the config names none of the vocabulary. */
  readonly imageToken: number | null;
  readonly preparation: ImagePreparation;
}

/**
 * `quick-gelu` is `x · sigmoid(1.702 x)`, `gelu` the exact GELU, and `gelu-tanh` its approximation by a tanh (Hendrycks and Gimpel, 2016).
 */
export type Activation = 'quick-gelu' | 'gelu' | 'gelu-tanh';

const ACTIVATIONS: ReadonlyMap<string, Activation> = new Map([
  ['quick_gelu', 'quick-gelu'],
  ['gelu', 'gelu'],
  ['gelu_pytorch_tanh', 'gelu-tanh'],
  ['gelu_new', 'gelu-tanh'],
]);

/** Maximum side of an image, pixels. A larger image would not fit a frame of the protocol. */
const MAX_IMAGE_SIZE = 1024;

const size = z
  .int()
  .min(1)
  .max(1 << 20);
const TOWERS = {
  clip_vision_model: { tower: 'clip', patch_size: 32, hidden_act: 'quick_gelu', layer_norm_eps: 1e-5 },
  siglip_vision_model: { tower: 'siglip', patch_size: 16, hidden_act: 'gelu_pytorch_tanh', layer_norm_eps: 1e-6 },
} as const;

const towerSchema = z.looseObject({
  model_type: z.string(),
  hidden_size: size.default(768),
  intermediate_size: size.default(3072),
  num_hidden_layers: size.max(1024).default(12),
  num_attention_heads: size.max(4096).default(12),
  num_channels: z.int().default(3),
  image_size: size.default(224),
  patch_size: size.nullish(),
  hidden_act: z.string().nullish(),
  layer_norm_eps: z.number().positive().max(1).nullish(),
});

const llavaSchema = z.looseObject({
  vision_config: towerSchema,
  vision_feature_layer: z.union([z.int(), z.array(z.int()).min(1)]).default(-2),
  vision_feature_select_strategy: z.string().default('default'),
  projector_hidden_act: z.string().default('gelu'),
  multimodal_projector_bias: z.boolean().default(true),
  // The second name is that of transformers 5.
  image_token_index: z.int().nullish(),
  image_token_id: z.int().nullish(),
});

/**
 * Reads the vision part of a parsed `config.json`, with the parsed `preprocessor_config.json`; undefined without a vision tower.
 *
 * @throws ModelError `malformed-config`, or `unsupported-model` with the unsupported feature
 */
export function parseVision(json: unknown, preprocessor: unknown, text: ModelConfig): VisionConfig | undefined {
  const split = splitLlava(json);
  if (!split) return undefined;
  const parsed = llavaSchema.safeParse(split.file);
  if (!parsed.success) throw new ModelError('malformed-config', `config.json: ${issueText(parsed.error)}`);
  const { vision_config: file, ...llava } = parsed.data;
  const towerDefaults = Object.hasOwn(TOWERS, file.model_type) && TOWERS[file.model_type as keyof typeof TOWERS];
  if (!towerDefaults)
    throw refused('vision_config.model_type', `vision towers of type "${file.model_type}" are not supported`);
  if (file.num_channels !== 3)
    throw refused('vision_config.num_channels', `a vision tower of ${file.num_channels} channels is not supported`);
  const patchSize = file.patch_size ?? towerDefaults.patch_size;
  if (file.image_size < patchSize)
    throw refused('vision_config.image_size', `images of ${file.image_size} pixels in patches of ${patchSize}`);
  if (file.image_size > MAX_IMAGE_SIZE)
    throw refused('vision_config.image_size', `images of more than ${MAX_IMAGE_SIZE} pixels a side`);
  if (file.hidden_size % file.num_attention_heads !== 0) {
    throw refused(
      'vision_config.num_attention_heads',
      `${file.num_attention_heads} heads cannot share ${file.hidden_size} values`,
    );
  }
  if (preprocessor === undefined)
    throw new ModelError('missing-file', 'preprocessor_config.json is missing, which says how images are prepared', {
      hint: 'pull the model again, or copy the file from its repository',
    });
  const keepsClassToken = classTokenOf(llava.vision_feature_select_strategy, towerDefaults.tower);
  const imageToken = llava.image_token_index ?? llava.image_token_id ?? -1;
  const patches = Math.floor(file.image_size / patchSize) ** 2;
  return {
    tower: towerDefaults.tower,
    hiddenSize: file.hidden_size,
    intermediateSize: file.intermediate_size,
    heads: file.num_attention_heads,
    layers: layersOf(llava.vision_feature_layer, file.num_hidden_layers),
    imageSize: file.image_size,
    patchSize,
    activation: activationOf('vision_config.hidden_act', file.hidden_act ?? towerDefaults.hidden_act),
    layerNormEpsilon: file.layer_norm_eps ?? towerDefaults.layer_norm_eps,
    keepsClassToken,
    projectorActivation: activationOf('projector_hidden_act', llava.projector_hidden_act),
    projectorBias: llava.multimodal_projector_bias,
    embedSize: text.hiddenSize,
    embeds: patches + (keepsClassToken ? 1 : 0),
    imageToken: imageToken >= 0 && imageToken < text.vocabularySize ? imageToken : null,
    preparation: parsePreparation(preprocessor, file.image_size),
  };
}

/** Whole patches along a side; the tower ignores the remaining pixels at the right and at the bottom. */
export function patchesASide({ imageSize, patchSize }: VisionConfig): number {
  return Math.floor(imageSize / patchSize);
}

/** Rows of the tower: one per patch, and with CLIP the class token's. */
export function towerRows(config: VisionConfig): number {
  return patchesASide(config) ** 2 + (config.tower === 'clip' ? 1 : 0);
}

/**
 * Number of layers to compute for `vision_feature_layer`: n selects the states after layer n, and 0 the states before the first layer. Negative
 * numbers count from the end: −1 selects the states after the last layer.
 */
function layersOf(layer: number | readonly number[], layers: number): number {
  const [only, ...more] = typeof layer === 'number' ? [layer] : layer;
  if (more.length > 0)
    throw refused('vision_feature_layer', 'features of several layers of the vision tower are not supported');
  const wanted = only < 0 ? layers + 1 + only : only;
  if (wanted < 0 || wanted > layers) throw refused('vision_feature_layer', `layer ${only} of ${layers} layers`);
  return wanted;
}

function classTokenOf(strategy: string, tower: 'clip' | 'siglip'): boolean {
  if (strategy === 'full') return tower === 'clip';
  if (strategy !== 'default') throw refused('vision_feature_select_strategy', `"${strategy}" is not supported`);
  // Without a class token, transformers would leave out the first patch instead.
  if (tower === 'siglip')
    throw refused('vision_feature_select_strategy', 'SigLIP has no class token to leave out: it must be "full"');
  return false;
}

function activationOf(field: string, name: string): Activation {
  const activation = ACTIVATIONS.get(name);
  if (activation === undefined) throw refused(field, `the activation "${name}" is not supported`);
  return activation;
}

function refused(field: string, what: string): ModelError {
  return new ModelError('unsupported-model', `config.json: "${field}": ${what}`, {
    hint: 'supported: LlavaForConditionalGeneration with a CLIP or SigLIP tower',
  });
}
