import { join, resolve } from 'node:path';
import { z } from 'zod';
import type { ModelConfig } from './config.ts';
import { issueText, ModelError } from './errors.ts';
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
  const mlp = config.targets.find((target) => !/^[qkvo]_proj$/.test(target));
  if (model.experts !== null && mlp !== undefined)
    throw new ModelError(
      'unsupported-adapter',
      `the adapter changes "${mlp}", which the experts of this model do not share`,
    );
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

/** The projections of a decoder layer that an adapter may change, in the order of the forward pass. */
export const PROJECTIONS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type Projection = (typeof PROJECTIONS)[number];

/** Parameters of a low-rank adapter that a backend needs, read from the `adapter_config.json` of Hugging Face's PEFT. */
export interface AdapterConfig {
  readonly rank: number;
  /** Factor by which the backend multiplies `B · A`, the product of the low-rank matrices, before it adds the product to a projection's matrix. */
  readonly scale: number;
  /** The projections that the adapter changes, in every layer. */
  readonly targets: readonly Projection[];
}

/** Far above any real rank. The bound keeps products of sizes exact. */
const MAX_RANK = 65_536;

const configSchema = z.looseObject({
  peft_type: z.string(),
  r: z.int().min(1).max(MAX_RANK),
  lora_alpha: z.number(),
  use_rslora: z.boolean().nullish(),
  target_modules: z.union([z.array(z.string()), z.string()]),
  bias: z.string().nullish(),
  init_lora_weights: z.union([z.boolean(), z.string()]).nullish(),
});

/** Settings that change the computation, each with the text of its refusal. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  use_dora: 'DoRA is not supported',
  use_qalora: 'QALoRA is not supported',
  lora_bias: 'biases of the low-rank matrices are not supported',
  modules_to_save: 'whole modules that were trained beside the low-rank matrices are not supported',
  trainable_token_indices: 'trained embeddings are not supported',
  target_parameters: 'parameters that are not projections are not supported',
  rank_pattern: 'ranks that differ by module are not supported',
  alpha_pattern: 'scales that differ by module are not supported',
  layers_to_transform: 'an adapter of some layers only is not supported',
  exclude_modules: 'an adapter that leaves modules out is not supported',
  layer_replication: 'repeated layers are not supported',
  alora_invocation_tokens: 'an adapter that begins inside a text is not supported',
  fan_in_fan_out: 'transposed matrices are not supported',
};

/** Initialisations that leave the model's own weights unchanged. */
const PLAIN_INITIALISATIONS: readonly unknown[] = [undefined, null, true, false, 'gaussian', 'eva', 'orthogonal'];

/**
 * Reads the parsed JSON of an `adapter_config.json`. The scale is `lora_alpha / r` (Hu et al., LoRA, 2021, section 4.1), or
 * `lora_alpha / √r` with `use_rslora` (Kalajdzievski, 2023).
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-adapter` when the backends do not implement the adapter's computation.
 */
export function parseAdapterConfig(json: unknown): AdapterConfig {
  const parsed = configSchema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `adapter_config.json: ${issueText(parsed.error)}`);
  const file = parsed.data;
  const { peft_type: type, r: rank, lora_alpha: alpha, bias, init_lora_weights: initialisation } = file;
  if (type !== 'LORA') throw refused(`an adapter of type "${type}" is not supported`);
  for (const [field, text] of Object.entries(UNSUPPORTED)) if (isSet(file[field])) throw refused(`"${field}": ${text}`);
  if (bias && bias !== 'none') throw refused(`"bias": trained biases ("${bias}") are not supported`);
  if (!PLAIN_INITIALISATIONS.includes(initialisation)) {
    const hint = 'save the adapter as a plain LoRA (path_initial_model_for_weight_conversion of PEFT)';
    throw refused(
      `"init_lora_weights": "${initialisation}" changes the model's own weights, which is not supported`,
      hint,
    );
  }
  return { rank, scale: alpha / (file.use_rslora ? Math.sqrt(rank) : rank), targets: targetsOf(file.target_modules) };
}

function targetsOf(modules: readonly string[] | string): readonly Projection[] {
  if (typeof modules === 'string') {
    throw refused(
      `"target_modules": the pattern "${modules}" is not supported`,
      `name projections: ${PROJECTION_NAMES}`,
    );
  }
  if (modules.length === 0) throw refused('"target_modules" is empty: the adapter changes nothing');
  const unknown = modules.find((name) => !(PROJECTIONS as readonly string[]).includes(name));
  if (unknown !== undefined)
    throw refused(`"target_modules": "${unknown}" is not supported`, `supported: ${PROJECTION_NAMES}`);
  return PROJECTIONS.filter((name) => modules.includes(name));
}

const PROJECTION_NAMES = PROJECTIONS.join(', ');

/** True when a setting has an effect: undefined, null, false, and empty lists or objects have none. */
function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return false;
  return typeof value !== 'object' || Object.keys(value).length > 0;
}

function refused(what: string, hint?: string): ModelError {
  return new ModelError('unsupported-adapter', `adapter_config.json: ${what}`, hint === undefined ? {} : { hint });
}
