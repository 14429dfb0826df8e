import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { configToJson, type ModelConfig } from '../config.ts';
import { expectedTensors, type LoadedModel, loadModel } from '../load.ts';
import { writeSafetensors } from '../safetensors.ts';
import { parseVision } from '../vision/config.ts';
import { expectedVisionTensors } from '../vision/tensors.ts';
import { gaussian, randomTensor, tinyConfig, writePlainTokenizer } from './random-model.ts';

/** Options of {@link randomVisionModel}. */
export interface RandomVisionOptions {
  readonly text?: Partial<ModelConfig>;
  /** Fields of `vision_config`. By default a CLIP tower with images of 12 pixels per side, patches of 4, and three layers. */
  readonly tower?: Readonly<Record<string, unknown>>;
  /** Fields of the outer `config.json`. */
  readonly llava?: Readonly<Record<string, unknown>>;
  /** Fields of `preprocessor_config.json`. */
  readonly preprocessor?: Readonly<Record<string, unknown>>;
  /**
   * Names of the written weights: `first` as in the first LLaVA 1.5, `flat` as transformers 5 writes them, `nested` as transformers 5 names them in
   * memory.
   */
  readonly names?: 'first' | 'flat' | 'nested';
  /** True for a token `<image>`, and a chat template that writes it where a message has an image. Needs a vocabulary of at least 260. */
  readonly chat?: boolean;
}

/** The token that stands for an image, with the first id after those of bytes. */
const IMAGE_TOKEN = '<image>';
const IMAGE_TOKEN_ID = 259;
/** A template that reads the content of a message as a list of parts, like those of published models. */
const CHAT_TEMPLATE =
  "{% for message in messages %}{{ message.role + ': ' }}{% for part in message.content %}" +
  `{% if part.type == 'image' %}${IMAGE_TOKEN}{% else %}{{ part.text }}{% endif %}` +
  "{% endfor %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

const TOWER = {
  model_type: 'clip_vision_model',
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 3,
  num_attention_heads: 2,
  image_size: 12,
  patch_size: 4,
};

/** Prefixes of the text model, its head, the tower and the projector. */
const WRITTEN_PREFIXES = {
  first: ['language_model.model.', 'language_model.lm_head.', 'vision_tower.vision_model.', ''],
  flat: ['language_model.model.', 'language_model.lm_head.', 'vision_tower.', ''],
  nested: ['model.language_model.', 'lm_head.', 'model.vision_tower.', 'model.'],
} as const;

/**
 * Writes a tiny random model with a vision tower, in the layout of `LlavaForConditionalGeneration`, and loads it. It replaces real vision weights
 * in tests. The same options and seed give the same bytes.
 */
export async function randomVisionModel(
  directory: string,
  options: RandomVisionOptions,
  seed: number,
): Promise<LoadedModel> {
  const text = tinyConfig(options.text ?? {});
  const { architectures: _, ...textConfig } = configToJson(text);
  const config = {
    architectures: ['LlavaForConditionalGeneration'],
    model_type: 'llava',
    text_config: textConfig,
    vision_config: { ...TOWER, ...options.tower },
    vision_feature_layer: -2,
    vision_feature_select_strategy: 'default',
    projector_hidden_act: 'gelu',
    image_token_index: options.chat ? IMAGE_TOKEN_ID : 3,
    ...options.llava,
  };
  const side = config.vision_config.image_size;
  const preprocessor = {
    image_processor_type: 'CLIPImageProcessor',
    size: { shortest_edge: side },
    crop_size: { height: side, width: side },
    ...options.preprocessor,
  };
  const vision = parseVision(config, preprocessor, text);
  if (!vision) throw new TypeError('the config is not that of a vision model');
  const random = gaussian(seed);
  const [model, head, tower, projector] = WRITTEN_PREFIXES[options.names ?? 'first'];
  const writtenName = (name: string): string => {
    if (name.startsWith('lm_head.')) return head + name.slice('lm_head.'.length);
    if (name.startsWith('vision_tower.')) return tower + name.slice('vision_tower.'.length);
    return name.startsWith('model.') ? model + name.slice('model.'.length) : projector + name;
  };
  const tensors = [...expectedTensors(text), ...expectedVisionTensors(vision)].map(([name, shape]) => ({
    name: writtenName(name),
    shape,
    data: () => (isVision(name) ? visionTensor(name, shape, random) : randomTensor(name, shape, random)),
  }));
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'config.json'), JSON.stringify(config, null, 2));
  await writeFile(join(directory, 'preprocessor_config.json'), JSON.stringify(preprocessor, null, 2));
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
  await writePlainTokenizer(
    directory,
    text.vocabularySize,
    options.chat ? { special: [IMAGE_TOKEN], chatTemplate: CHAT_TEMPLATE } : {},
  );
  return loadModel(directory);
}

function isVision(name: string): boolean {
  return name.startsWith('vision_tower.') || name.startsWith('multi_modal_projector.');
}

/** Random norms around one, biases large enough to matter, and other weights scaled so that activations stay near one. */
function visionTensor(name: string, shape: readonly number[], random: () => number): Float32Array {
  const size = shape.reduce((product, dimension) => product * dimension, 1);
  const mean = isNorm(name) ? 1 : 0;
  const deviation = deviationOf(name, shape, size);
  return Float32Array.from({ length: size }, () => mean + deviation * random());
}

function isNorm(name: string): boolean {
  return /norm\d?\.weight$/.test(name);
}

function deviationOf(name: string, shape: readonly number[], size: number): number {
  if (isNorm(name)) return 0.1;
  // A bias.
  if (shape.length === 1) return 0.3;
  if (name.includes('position')) return 0.5;
  const columns = size / (shape[0] ?? 1);
  return 1.5 / Math.sqrt(columns);
}
