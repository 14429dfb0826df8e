import { join, resolve } from 'node:path';
import { type AdapterConfig, type Projection, parseAdapterConfig } from './adapter-config.ts';
import type { ModelConfig } from './config.ts';
import { ModelError } from './errors.ts';
import { expectedTensors, readJson } from './load.ts';
import { type FloatTensor, readSafetensorsHeader, readTensor } from './safetensors.ts';

/** The low-rank change of one projection: a backend adds `scale · B · A` to the projection's matrix (Hu et al., LoRA, 2021, section 4.1). */
export interface LowRank {
  /** `rank × columns`, row-major. */
  readonly a: Float32Array;
  /** `rows × rank`, row-major. */
  readonly b: Float32Array;
}

/** An adapter in PEFT layout with checked names and shapes. `read` loads matrices on demand. */
export interface LoadedAdapter extends AdapterConfig {
  /** Absolute path of the directory with adapter_config.json and adapter_model.safetensors. */
  readonly directory: string;
  /** Bytes of all matrices as 32-bit floats. */
  readonly bytes: number;
  /**
   * The matrices of one projection, from disk; undefined when the adapter does not change it.
   * @throws ModelError `malformed-weights` when the file changed after the check, or holds numbers that are not finite
   */
  read(layer: number, projection: Projection): LowRank | undefined;
}

/**
 * Opens an adapter's directory in the layout of Hugging Face's PEFT, for a model of this config.
 *
 * @throws ModelError that names the fault: the file, the field, the missing or extra tensor, or the tensor of wrong shape
 */
export async function loadAdapter(directory: string, model: ModelConfig): Promise<LoadedAdapter> {
  const root = resolve(directory);
  const config = parseAdapterConfig(await readJson(join(root, 'adapter_config.json')));
  const file = join(root, 'adapter_model.safetensors');
  const tensors = readSafetensorsHeader(file);
  const expected = adapterTensors(model, config);
  let bytes = 0;
  for (const [name, shape] of expected) {
    checkShape(name, tensors.get(name), shape);
    bytes += 4 * shape.reduce((product, dimension) => product * dimension, 1);
  }
  const names = new Set(expected.map(([name]) => name));
  for (const name of tensors.keys()) {
    if (names.has(name)) continue;
    throw new ModelError('unsupported-adapter', `${file}: "${name}" belongs to no projection that the adapter targets`);
  }
  const tensor = (name: string): Float32Array => {
    const values = readTensor(tensors.get(name) as FloatTensor);
    if (!areFinite(values))
      throw new ModelError('malformed-weights', `${file}: "${name}" holds numbers that are not finite`);
    return values;
  };
  return {
    ...config,
    directory: root,
    bytes,
    read(layer, projection) {
      if (!config.targets.includes(projection)) return undefined;
      const [a, b] = tensorNames(layer, projection);
      return { a: tensor(a), b: tensor(b) };
    },
  };
}

/** Every tensor of an adapter with these targets, with its shape. */
export function adapterTensors(
  model: ModelConfig,
  { rank, targets }: Pick<AdapterConfig, 'rank' | 'targets'>,
): [name: string, shape: readonly number[]][] {
  const shapes = new Map(expectedTensors(model));
  return Array.from({ length: model.layers }, (_, layer) => layer).flatMap((layer) =>
    targets.flatMap((projection): [string, readonly number[]][] => {
      const [rows = 0, columns = 0] = shapes.get(weightName(layer, projection)) ?? [];
      const [a, b] = tensorNames(layer, projection);
      return [
        [a, [rank, columns]],
        [b, [rows, rank]],
      ];
    }),
  );
}

/** Name of the model's tensor to which an adapter for `projection` applies. */
function weightName(layer: number, projection: Projection): string {
  return `${moduleName(layer, projection)}.weight`;
}

function tensorNames(layer: number, projection: Projection): [a: string, b: string] {
  const module = `base_model.model.${moduleName(layer, projection)}`;
  return [`${module}.lora_A.weight`, `${module}.lora_B.weight`];
}

function moduleName(layer: number, projection: Projection): string {
  const part = /^[qkvo]_proj$/.test(projection) ? 'self_attn' : 'mlp';
  return `model.layers.${layer}.${part}.${projection}`;
}

function checkShape(name: string, info: FloatTensor | undefined, shape: readonly number[]): void {
  if (info === undefined) {
    throw new ModelError('missing-tensor', `the adapter lacks "${name}" of shape [${shape.join(', ')}]`, {
      hint: 'the adapter and the model do not belong together, or not every layer was adapted',
    });
  }
  if (info.shape.length === shape.length && info.shape.every((dimension, i) => dimension === shape[i])) return;
  throw new ModelError(
    'wrong-shape',
    `"${name}" has shape [${info.shape.join(', ')}]; the model and adapter_config.json imply [${shape.join(', ')}]`,
  );
}

/** A plain loop, because a callback per number took most of the load time. */
function areFinite(values: Float32Array): boolean {
  for (let i = 0; i < values.length; i++) if (!Number.isFinite(values[i])) return false;
  return true;
}
