import { z } from 'zod';
import { ENCODER_TYPES } from '../../encoder/config.ts';
import { ModelError } from '../../errors.ts';
import { LLAVA } from '../../vision/llava.ts';

/** Encoding of a checkpoint's matrices, from the `quantization_config` of its `config.json`. */
export type Quantization = (Float8 | Awq | Gptq | Packed) & {
  /** Modules that the config leaves in plain floats. Entries that are patterns, such as `re:.*embed.*`, have no effect: they equal no name. */
  readonly ignored: ReadonlySet<string>;
};

/** e4m3 values with scales to multiply by. */
export interface Float8 {
  readonly kind: 'float8';
  /** Possible names of a matrix's scales: the part that takes the place of `weight` in the matrix's name. */
  readonly scales: readonly string[];
  /** The part of a matrix that shares one scale. */
  readonly shared: 'matrix' | 'row' | Tile;
}

/** Levels of 4 bits in AWQ's layout "gemm". */
export interface Awq {
  readonly kind: 'awq';
  /** Number of inputs in a group; null for one group of all inputs. */
  readonly groupSize: number | null;
}

/** Levels in GPTQ's layout. */
export interface Gptq {
  readonly kind: 'gptq';
  readonly bits: 4 | 8;
  /** Number of inputs in a group; null for one group of all inputs. */
  readonly groupSize: number | null;
  /** True when each zero point is stored minus one, as in the first of GPTQ's two formats. */
  readonly zerosLessOne: boolean;
  /** True when a tensor says which inputs form a group. */
  readonly reordered: boolean;
}

/** Levels in compressed-tensors' format "pack-quantized". */
export interface Packed {
  readonly kind: 'packed';
  readonly bits: 4 | 8;
  /** Number of inputs in a group; null for one group of all inputs. */
  readonly groupSize: number | null;
  readonly hasZeros: boolean;
  /** True when a tensor says which inputs form a group. */
  readonly reordered: boolean;
}

export type Tile = readonly [rows: number, columns: number];

const SUPPORTED = 'supported: "fp8", "awq", "gptq" and "compressed-tensors" (float-quantized, pack-quantized)';

const moduleNames = z.array(z.string()).max(100_000).nullish();
const tile = z.tuple([z.int().min(1).max(65_536), z.int().min(1).max(65_536)]);

const methodSchema = z.looseObject({ quant_method: z.string() });

/** @see https://github.com/huggingface/transformers/blob/main/src/transformers/utils/quantization_config.py (`FineGrainedFP8Config`) */
const float8Schema = z.looseObject({
  fmt: z.string().nullish(),
  weight_block_size: tile.nullish(),
  modules_to_not_convert: moduleNames,
  ignored_layers: moduleNames,
});

/** -1 stands for all inputs. */
const groupSize = z.union([
  z.literal(-1),
  z
    .int()
    .min(1)
    .max(1 << 24),
]);

/** `w_bit` and `q_group_size` are the names in AutoAWQ's own configuration file. */
const awqSchema = z.looseObject({
  bits: z.int().nullish(),
  w_bit: z.int().nullish(),
  group_size: groupSize.nullish(),
  q_group_size: groupSize.nullish(),
  version: z.string().nullish(),
  checkpoint_format: z.string().nullish(),
  zero_point: z.boolean().nullish(),
  backend: z.string().nullish(),
  modules_to_not_convert: moduleNames,
});

const gptqSchema = z.looseObject({
  bits: z.int(),
  group_size: groupSize,
  desc_act: z.boolean().nullish(),
  checkpoint_format: z.string().nullish(),
  format: z.string().nullish(),
  is_marlin_format: z.boolean().nullish(),
  pack_dtype: z.string().nullish(),
  dynamic: z.record(z.string(), z.unknown()).nullish(),
  modules_to_not_convert: moduleNames,
});

/** @see https://github.com/neuralmagic/compressed-tensors/blob/main/src/compressed_tensors/quantization/quant_args.py */
const weightsSchema = z.looseObject({
  num_bits: z.int(),
  type: z.string(),
  strategy: z.string(),
  symmetric: z.boolean().nullish(),
  dynamic: z.union([z.boolean(), z.string()]).nullish(),
  block_structure: tile.nullish(),
  group_size: groupSize.nullish(),
  actorder: z.union([z.string(), z.boolean()]).nullish(),
});
const compressedSchema = z.looseObject({
  format: z.string(),
  config_groups: z.record(z.string(), z.looseObject({ weights: weightsSchema, format: z.string().nullish() })),
  ignore: moduleNames,
  sparsity_config: z.looseObject({ format: z.string().nullish() }).nullish(),
  transform_config: z.looseObject({}).nullish(),
});

const fileSchema = z.looseObject({ model_type: z.unknown(), quantization_config: z.unknown() });

/** True for the `config.json` of a model with quantised weights, except that of an encoder. */
export function saysQuantized(json: unknown): boolean {
  const { success, data } = fileSchema.safeParse(json);
  if (!success || (ENCODER_TYPES as readonly unknown[]).includes(data.model_type)) return false;
  return (data.quantization_config ?? null) !== null;
}

/**
 * Reads the `quantization_config` of a parsed `config.json`. Settings for activations and for cached keys have no effect: Pie keeps activations
 * and keys in the type of the computation.
 *
 * @throws ModelError `unsupported-model` or `malformed-config`; the message names the field
 */
export function parseQuantization(json: unknown): Quantization {
  const file = parse(fileSchema, json);
  if (file.model_type === LLAVA) refuse('', 'quantised models with a vision tower are not supported');
  const method = parse(methodSchema, file.quantization_config).quant_method;
  switch (method) {
    case 'fp8':
      return float8Of(parse(float8Schema, file.quantization_config));
    case 'awq':
      return awqOf(parse(awqSchema, file.quantization_config));
    case 'gptq':
      return gptqOf(parse(gptqSchema, file.quantization_config));
    case 'compressed-tensors':
      return compressedOf(parse(compressedSchema, file.quantization_config));
    default:
      return refuse('quant_method', `"${method}" is not supported`, SUPPORTED);
  }
}

function float8Of(file: z.infer<typeof float8Schema>): Quantization {
  const { fmt, weight_block_size: block } = file;
  if (fmt && fmt !== 'e4m3') refuse('fmt', `"${fmt}" is not supported`, 'supported: "e4m3"');
  return {
    kind: 'float8',
    // The name of the scales of tiles says "inverse" because they undo the division by the quantiser's own scale.
    ...(block
      ? { scales: ['weight_scale_inv'], shared: block }
      : { scales: ['weight_scale', 'weight_scale_inv'], shared: 'matrix' }),
    ignored: new Set([...(file.modules_to_not_convert ?? []), ...(file.ignored_layers ?? [])]),
  };
}

function awqOf(file: z.infer<typeof awqSchema>): Quantization {
  const bits = file.bits ?? file.w_bit;
  const layout = file.version ?? file.checkpoint_format ?? 'gemm';
  const size = file.group_size ?? file.q_group_size;
  if (bits !== 4) refuse('bits', `${bits} bits are not supported`, 'supported: 4');
  if (layout.toLowerCase() !== 'gemm') refuse('version', `"${layout}" is not supported`, 'supported: "gemm"');
  if (file.zero_point === false) refuse('zero_point', 'levels without zero points are not supported');
  if (file.backend === 'llm-awq') refuse('backend', 'the layout of "llm-awq" is not supported');
  if (size === undefined || size === null) return malformed('group_size', 'missing');
  return { kind: 'awq', groupSize: size < 0 ? null : size, ignored: new Set(file.modules_to_not_convert) };
}

function gptqOf(file: z.infer<typeof gptqSchema>): Quantization {
  const { bits, group_size: size, pack_dtype: wordType } = file;
  const format = file.checkpoint_format ?? file.format ?? 'gptq';
  if (format !== 'gptq' && format !== 'gptq_v2')
    refuse('checkpoint_format', `"${format}" is not supported`, 'supported: "gptq" and "gptq_v2"');
  if (file.is_marlin_format) refuse('is_marlin_format', 'the layout "marlin" is not supported');
  if (wordType && wordType !== 'int32') refuse('pack_dtype', `"${wordType}" is not supported`, 'supported: "int32"');
  // A rule that begins with `-:` excludes modules, which then have plain floats. Other rules give modules their own bits and groups.
  const rule = Object.keys(file.dynamic ?? {}).find((key) => !key.startsWith('-:'));
  if (rule !== undefined) refuse('dynamic', `modules with other settings ("${rule}") are not supported`);
  return {
    kind: 'gptq',
    bits: bitsOf('bits', bits),
    groupSize: size < 0 ? null : size,
    zerosLessOne: format === 'gptq',
    reordered: file.desc_act ?? false,
    ignored: new Set(file.modules_to_not_convert),
  };
}

function compressedOf(file: z.infer<typeof compressedSchema>): Quantization {
  const sparse = file.sparsity_config?.format ?? 'dense';
  if (sparse !== 'dense') refuse('sparsity_config.format', `"${sparse}" is not supported`);
  if (Object.keys(file.transform_config ?? {}).length > 0)
    refuse('transform_config', 'rotated weights are not supported');
  const groups = Object.entries(file.config_groups);
  const [first] = groups;
  if (first === undefined || groups.length > 1)
    return refuse('config_groups', `${groups.length} kinds of matrices; one is supported`);
  const [group, { weights, format: groupFormat }] = first;
  const format = groupFormat ?? file.format;
  const field = (name: string) => `config_groups.${group}.weights.${name}`;
  if (weights.dynamic) refuse(field('dynamic'), 'weights without scales of their own are not supported');
  const ignored = new Set(file.ignore);
  switch (format) {
    case 'float-quantized':
      return { ...floatWeights(weights, field), ignored };
    case 'pack-quantized':
      return { ...packedWeights(weights, field), ignored };
    default:
      return refuse('format', `"${format}" is not supported`, SUPPORTED);
  }
}

type Weights = z.infer<typeof weightsSchema>;

function floatWeights(weights: Weights, field: (name: string) => string): Float8 {
  const { type, num_bits: bits, strategy, block_structure: block } = weights;
  if (type !== 'float' || bits !== 8) refuse(field('type'), `"${type}" of ${bits} bits does not belong to this format`);
  if (weights.symmetric === false) refuse(field('symmetric'), 'floats with a zero point are not supported');
  const shared = (): Float8['shared'] => {
    switch (strategy) {
      case 'tensor':
        return 'matrix';
      case 'channel':
        return 'row';
      case 'block':
        return block ?? malformed(field('block_structure'), 'missing');
      default:
        return refuse(
          field('strategy'),
          `"${strategy}" is not supported`,
          'supported: "tensor", "channel" and "block"',
        );
    }
  };
  return { kind: 'float8', scales: ['weight_scale'], shared: shared() };
}

function packedWeights(weights: Weights, field: (name: string) => string): Packed {
  const { type, num_bits, strategy, group_size: size, actorder } = weights;
  if (type !== 'int') refuse(field('type'), `"${type}" does not belong to this format`);
  if (strategy !== 'group' && strategy !== 'channel')
    refuse(field('strategy'), `"${strategy}" is not supported`, 'supported: "group" and "channel"');
  if (strategy === 'group' && !size) return malformed(field('group_size'), 'missing');
  return {
    kind: 'packed',
    bits: bitsOf(field('num_bits'), num_bits),
    groupSize: strategy === 'group' && size && size > 0 ? size : null,
    hasZeros: weights.symmetric === false,
    // With every other value of `actorder`, the inputs of a group are neighbours.
    reordered: strategy === 'group' && (actorder === true || actorder === 'group'),
  };
}

function bitsOf(field: string, bits: number): 4 | 8 {
  return bits === 4 || bits === 8 ? bits : refuse(field, `${bits} bits are not supported`, 'supported: 4 and 8');
}

function parse<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  return malformed(issue?.path.join('.') ?? '', issue?.message ?? 'invalid');
}

function malformed(field: string, what: string): never {
  throw new ModelError('malformed-config', `config.json: "${fullName(field)}": ${what}`);
}

const PLAIN_HINT = 'use the checkpoint with bf16, fp16 or fp32 weights, or a GGUF file of the model';

function refuse(field: string, what: string, supported?: string): never {
  throw new ModelError('unsupported-model', `config.json: "${fullName(field)}": ${what}`, {
    hint: supported === undefined ? PLAIN_HINT : `${supported}; or ${PLAIN_HINT}`,
  });
}

function fullName(field: string): string {
  return field === '' ? 'quantization_config' : `quantization_config.${field}`;
}
