import { float8Scheme } from './float8.ts';
import { awqScheme, gptqScheme, packedScheme } from './levels.ts';
import { floats, type Scheme } from './write.ts';

const ACTIVATION_SCALE = floats([0.05], 'F32', []).raw;

/** The `quantization_config` that llm-compressor writes. */
function compressed(format: string, weights: object, inputs: object | null): Scheme['quantization'] {
  const group = { targets: ['Linear'], input_activations: inputs, output_activations: null, weights };
  return (plain) => ({
    quant_method: 'compressed-tensors',
    format,
    quantization_status: 'compressed',
    kv_cache_scheme: null,
    config_groups: { group_0: group },
    ignore: [...plain, 're:.*embed.*'],
    sparsity_config: {},
  });
}

const float8Weights = (strategy: string, rest: object = {}) => ({
  num_bits: 8,
  type: 'float',
  strategy,
  symmetric: true,
  dynamic: false,
  group_size: null,
  block_structure: null,
  ...rest,
});

const awq = (group_size: number): Scheme['quantization'] => {
  return (modules_to_not_convert) => ({
    quant_method: 'awq',
    bits: 4,
    group_size,
    version: 'gemm',
    zero_point: true,
    modules_to_not_convert,
  });
};

/** The `quantization_config` that GPTQModel writes. */
const gptq = (bits: number, group_size: number, rest: object = {}): Scheme['quantization'] => {
  return (plain) => ({
    quant_method: 'gptq',
    bits,
    group_size,
    desc_act: false,
    sym: false,
    checkpoint_format: 'gptq',
    lm_head: plain.length === 0,
    pack_dtype: 'int32',
    dynamic: { '-:.*embed.*': {} },
    ...rest,
  });
};

const packedWeights = (num_bits: number, rest: object) => ({
  num_bits,
  type: 'int',
  strategy: 'group',
  group_size: 32,
  symmetric: true,
  dynamic: false,
  actorder: null,
  ...rest,
});

/** Every quantisation scheme that a pull converts. */
export const SCHEMES = {
  'fp8, tiles': float8Scheme({
    quantization: (modules_to_not_convert) => ({
      quant_method: 'fp8',
      fmt: 'e4m3',
      activation_scheme: 'dynamic',
      weight_block_size: [128, 128],
      modules_to_not_convert,
    }),
    end: 'weight_scale_inv',
    type: 'F32',
    tile: [128, 128],
    shape: (rows, columns) => [rows, columns],
  }),
  'fp8, one scale': float8Scheme({
    quantization: (ignored_layers) => ({ quant_method: 'fp8', activation_scheme: 'static', ignored_layers }),
    end: 'weight_scale',
    type: 'F32',
    tile: [Infinity, Infinity],
    shape: () => [],
    extra: { input_scale: ACTIVATION_SCALE },
  }),
  'compressed-tensors, one scale': float8Scheme({
    quantization: compressed('float-quantized', float8Weights('tensor'), float8Weights('tensor')),
    end: 'weight_scale',
    type: 'BF16',
    tile: [Infinity, Infinity],
    shape: () => [1],
    extra: { input_scale: ACTIVATION_SCALE },
  }),
  'compressed-tensors, rows': float8Scheme({
    quantization: compressed('float-quantized', float8Weights('channel'), float8Weights('token', { dynamic: true })),
    end: 'weight_scale',
    type: 'BF16',
    tile: [1, Infinity],
    shape: (rows) => [rows, 1],
  }),
  'compressed-tensors, tiles': float8Scheme({
    quantization: compressed('float-quantized', float8Weights('block', { block_structure: [96, 128] }), null),
    end: 'weight_scale',
    type: 'F16',
    tile: [96, 128],
    shape: (rows, columns) => [rows, columns],
  }),
  'awq, groups of 32': awqScheme({ groupSize: 32, symmetric: false, type: 'F16' }, awq(32)),
  'awq, groups of 8': awqScheme({ groupSize: 8, symmetric: false, type: 'BF16' }, awq(8)),
  'gptq, groups of 32': gptqScheme(
    { bits: 4, groupSize: 32, symmetric: false, type: 'F16', format: 'gptq' },
    gptq(4, 32),
  ),
  'gptq, symmetric groups of 16': gptqScheme(
    { bits: 4, groupSize: 16, symmetric: true, type: 'F16', format: 'gptq' },
    gptq(4, 16, { sym: true }),
  ),
  'gptq, groups of 64, the last one shorter': gptqScheme(
    { bits: 4, groupSize: 64, symmetric: false, type: 'F16', format: 'gptq' },
    gptq(4, 64),
  ),
  'gptq, reordered': gptqScheme(
    { bits: 4, groupSize: 32, symmetric: false, type: 'F16', format: 'gptq', reordered: true },
    gptq(4, 32, { desc_act: true }),
  ),
  'gptq, 8 bits': gptqScheme({ bits: 8, groupSize: 32, symmetric: false, type: 'F16', format: 'gptq' }, gptq(8, 32)),
  'gptq_v2, 8 bits, one group': gptqScheme(
    { bits: 8, groupSize: Infinity, symmetric: false, type: 'F32', format: 'gptq_v2' },
    gptq(8, -1, { checkpoint_format: 'gptq_v2' }),
  ),
  'compressed-tensors, 4 bits': packedScheme(
    { bits: 4, groupSize: 32, symmetric: true, type: 'BF16' },
    compressed('pack-quantized', packedWeights(4, {}), null),
  ),
  'compressed-tensors, 4 bits with zero points': packedScheme(
    { bits: 4, groupSize: 32, symmetric: false, type: 'BF16' },
    compressed('pack-quantized', packedWeights(4, { symmetric: false }), null),
  ),
  'compressed-tensors, 8 bits, rows': packedScheme(
    { bits: 8, groupSize: Infinity, symmetric: true, type: 'BF16' },
    compressed('pack-quantized', packedWeights(8, { strategy: 'channel', group_size: null }), null),
  ),
  'compressed-tensors, reordered': packedScheme(
    { bits: 4, groupSize: 32, symmetric: true, type: 'F32', reordered: true },
    compressed('pack-quantized', packedWeights(4, { actorder: 'group' }), null),
  ),
} as const satisfies Readonly<Record<string, Scheme>>;
