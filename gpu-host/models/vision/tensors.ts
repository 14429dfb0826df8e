import type { TensorStore } from '../load.ts';
import { towerRows, type VisionConfig } from './config.ts';

/** Every tensor of a tower and projector with this config, under the names of this module, in the order of the forward pass. */
export function expectedVisionTensors(config: VisionConfig): [name: string, shape: readonly number[]][] {
  const { tower, hiddenSize: hidden, intermediateSize: intermediate, patchSize, embedSize } = config;
  const expected: [string, readonly number[]][] = [];
  const add = (name: string, ...shape: number[]): void => void expected.push([name, shape]);
  const norm = (name: string): void => {
    add(`${name}.weight`, hidden);
    add(`${name}.bias`, hidden);
  };
  const linear = (name: string, rows: number, columns: number, hasBias = true): void => {
    add(`${name}.weight`, rows, columns);
    if (hasBias) add(`${name}.bias`, rows);
  };
  if (tower === 'clip') add('vision_tower.embeddings.class_embedding', hidden);
  add('vision_tower.embeddings.patch_embedding.weight', hidden, 3, patchSize, patchSize);
  if (tower === 'siglip') add('vision_tower.embeddings.patch_embedding.bias', hidden);
  add('vision_tower.embeddings.position_embedding.weight', towerRows(config), hidden);
  if (tower === 'clip') norm('vision_tower.pre_layrnorm');
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `vision_tower.encoder.layers.${layer}`;
    norm(`${prefix}.layer_norm1`);
    for (const projection of ['q', 'k', 'v', 'out']) linear(`${prefix}.self_attn.${projection}_proj`, hidden, hidden);
    norm(`${prefix}.layer_norm2`);
    linear(`${prefix}.mlp.fc1`, intermediate, hidden);
    linear(`${prefix}.mlp.fc2`, hidden, intermediate);
  }
  linear('multi_modal_projector.linear_1', embedSize, hidden, config.projectorBias);
  linear('multi_modal_projector.linear_2', embedSize, embedSize, config.projectorBias);
  return expected;
}

/** Prefixes of this module, each with the prefixes that versions of transformers wrote in its place. */
const WRITTEN_PREFIXES: readonly (readonly [prefix: string, written: readonly string[]])[] = [
  ['lm_head.', ['language_model.lm_head.', 'lm_head.']],
  ['model.', ['language_model.model.', 'model.language_model.']],
  [
    'vision_tower.',
    ['vision_tower.vision_model.', 'vision_tower.', 'model.vision_tower.vision_model.', 'model.vision_tower.'],
  ],
  ['multi_modal_projector.', ['multi_modal_projector.', 'model.multi_modal_projector.']],
];

/** The tensors of a LLaVA checkpoint, with the text model's tensors under the names that they have without a tower. */
export function llavaTensors(stored: TensorStore): TensorStore {
  const writtenAs = (name: string): string => {
    const [prefix = '', written = []] = WRITTEN_PREFIXES.find(([start]) => name.startsWith(start)) ?? [];
    const names = written.map((start) => start + name.slice(prefix.length));
    return names.find((candidate) => stored.has(candidate)) ?? name;
  };
  return {
    has: (name) => stored.has(writtenAs(name)),
    info: (name) => stored.info(writtenAs(name)),
    read: (name) => stored.read(writtenAs(name)),
  };
}
