import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { listCached } from '../../cache.ts';
import { ModelError } from '../../errors.ts';
import { type LoadedModel, loadModel } from '../../load.ts';
import { pullModel } from '../../pull.ts';
import { isBlocked, type TensorInfo } from '../../tensors.ts';
import { randomModel } from '../../testing/random-model.ts';
import { convertQuantized } from './convert.ts';
import { SCHEMES } from './testing/schemes.ts';
import { type Checkpoint, quantizedCheckpoint, type Raw, type Scheme, writeCheckpoint } from './testing/write.ts';

/** Sizes that are no multiples of 128, so that the last tile of a row or column is smaller than the others. */
const SHAPE = { hiddenSize: 160, intermediateSize: 192, headDim: 40, layers: 1 } as const;
/** The largest relative error of one rounding to float32. */
const ROUNDED_ONCE = 2 ** -24;

const GATE = 'model.layers.0.mlp.gate_proj';

/** The form in which the conversion stores a matrix with 160 inputs, by scheme. */
const STORAGE_BY_SCHEME: Readonly<Record<keyof typeof SCHEMES, string>> = {
  'fp8, tiles': 'F32',
  'fp8, one scale': 'F32',
  'compressed-tensors, one scale': 'F32',
  'compressed-tensors, rows': 'F32',
  'compressed-tensors, tiles': 'F32',
  'awq, groups of 32': 'int4 in blocks of 32 with zero points',
  'awq, groups of 8': 'F32',
  'gptq, groups of 32': 'int4 in blocks of 32 with zero points',
  'gptq, symmetric groups of 16': 'int4 in blocks of 16',
  'gptq, groups of 64, the last one shorter': 'F32',
  'gptq, reordered': 'F32',
  'gptq, 8 bits': 'int8 in blocks of 32 with zero points',
  'gptq_v2, 8 bits, one group': 'int8 in blocks of 32 with zero points',
  'compressed-tensors, 4 bits': 'int4 in blocks of 32',
  'compressed-tensors, 4 bits with zero points': 'int4 in blocks of 32 with zero points',
  'compressed-tensors, 8 bits, rows': 'int8 in blocks of 32',
  'compressed-tensors, reordered': 'F32',
};

/** A checkpoint, and the code and message of its refusal. The refusal has the hint that `HINTS` gives for its code; with `null`, it has no hint. */
type Refused = [Pick<Checkpoint, 'config' | 'tensors'>, code: string, message: RegExp, hint?: null];

/** Hints of refusals, by code. Refusals with other codes have no hint. */
const HINTS: Readonly<Record<string, RegExp>> = {
  'unsupported-model': /use the checkpoint with bf16/,
  'missing-tensor': /do not belong together/,
  'malformed-weights': /do not belong together|the checkpoint is damaged/,
};

const storageOf = (info: TensorInfo) => {
  if (!isBlocked(info)) return info.dtype;
  const blocks = `${info.dtype} in blocks of ${info.blockSize}`;
  return info.zeros === null ? blocks : `${blocks} with zero points`;
};

describe('convertQuantized', () => {
  let directory: string;
  let original: LoadedModel;
  let json: Record<string, unknown>;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-quantized-'));
    original = await randomModel(join(directory, 'original'), { ...SHAPE, family: 'qwen2' }, 5);
    json = JSON.parse(await readFile(join(original.directory, 'config.json'), 'utf8'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const checkpoints = new Map<Scheme, Checkpoint>();
  /** The checkpoint of a scheme, quantised only once, with a map of tensors that the test may change. */
  const make = (scheme: Scheme): Checkpoint => {
    const checkpoint = checkpoints.get(scheme) ?? quantizedCheckpoint(original, json, scheme);
    checkpoints.set(scheme, checkpoint);
    return { ...checkpoint, tensors: new Map(checkpoint.tensors) };
  };
  const write = async (checkpoint: Pick<Checkpoint, 'config' | 'tensors'>, layout?: 'shards') => {
    const at = await mkdtemp(join(directory, 'checkpoint-'));
    await writeCheckpoint(at, checkpoint, original.directory, layout);
    return at;
  };
  const convert = async (checkpoint: Pick<Checkpoint, 'config' | 'tensors'>, layout?: 'shards') => {
    const out = await mkdtemp(join(directory, 'out-'));
    await convertQuantized(await write(checkpoint, layout), out);
    return loadModel(out);
  };
  /** The largest relative error of the model's values; `exact` has the true values in float64. */
  const errorOf = (model: LoadedModel, { exact }: Checkpoint) => {
    let worst = 0;
    for (const [name, { shape, values }] of exact) {
      const found = model.tensors.read(name);
      assert.deepEqual([model.tensors.info(name).shape, found.length], [shape, values.length], name);
      values.forEach((value, i) => {
        worst = Math.max(worst, found[i] === value ? 0 : Math.abs(found[i]! - value) / Math.abs(value));
      });
    }
    return worst;
  };

  for (const [name, scheme] of Object.entries(SCHEMES)) {
    it(`${name}: every value is the float64 product, rounded once`, async (context) => {
      const checkpoint = make(scheme);
      const model = await convert(checkpoint);
      const error = errorOf(model, checkpoint);
      context.diagnostic(`largest relative error ${error.toExponential(2)}`);
      assert.ok(error <= ROUNDED_ONCE, `${error}`);
      assert.deepEqual(model.config, original.config);
      const names = [`${GATE}.weight`, 'lm_head.weight', 'model.layers.0.self_attn.q_proj.bias'];
      const found = names.map((each) => storageOf(model.tensors.info(each)));
      assert.deepEqual(found, [STORAGE_BY_SCHEME[name as keyof typeof SCHEMES], 'BF16', 'BF16']);
    });
  }

  it('converts a checkpoint in shards', async () => {
    const checkpoint = make(SCHEMES['gptq, groups of 32']);
    assert.ok(errorOf(await convert(checkpoint, 'shards'), checkpoint) <= ROUNDED_ONCE);
  });

  /** A checkpoint with one tensor replaced, or removed. */
  const withChangedTensor = (
    name: string,
    change: (raw: Raw) => Partial<Raw> | null,
    scheme: Scheme = SCHEMES['fp8, tiles'],
  ) => {
    const { config, tensors } = make(scheme);
    const raw = tensors.get(name);
    assert.ok(raw, name);
    const replaced = change({ ...raw, bytes: Uint8Array.from(raw.bytes) });
    if (replaced === null) tensors.delete(name);
    else tensors.set(name, { ...raw, ...replaced });
    return { config, tensors };
  };
  const withConfig = (quantization: object, scheme: Scheme = SCHEMES['fp8, tiles'], rest: object = {}) => {
    const { config, tensors } = make(scheme);
    return {
      config: {
        ...config,
        ...rest,
        quantization_config: { ...(config.quantization_config as object), ...quantization },
      },
      tensors,
    };
  };
  /** Overwrites bytes of a tensor from byte `at` on. */
  const withBytes =
    (at: number, ...bytes: number[]) =>
    (raw: Raw) => {
      raw.bytes.set(bytes, at);
      return raw;
    };

  const groupedCases = (): Refused[] => {
    const [awq, gptq, reordered] = [
      SCHEMES['awq, groups of 32'],
      SCHEMES['gptq, groups of 32'],
      SCHEMES['gptq, reordered'],
    ];
    const packed = SCHEMES['compressed-tensors, 4 bits with zero points'];
    const weights = (change: object) => {
      const group = (packed.quantization([]).config_groups as Record<string, { weights: object }>).group_0!;
      return { config_groups: { group_0: { ...group, weights: { ...group.weights, ...change } } } };
    };
    const both = make(awq);
    both.tensors.set(`${GATE}.weight`, make(SCHEMES['fp8, tiles']).tensors.get(`${GATE}.weight`)!);
    const experts = make(gptq);
    experts.tensors.set('model.layers.0.mlp.experts.0.up_proj.qweight', experts.tensors.get(`${GATE}.qweight`)!);
    return [
      [withConfig({ bits: 8 }, awq), 'unsupported-model', /quantization_config\.bits.*8 bits/],
      [withConfig({ version: 'gemv' }, awq), 'unsupported-model', /quantization_config\.version.*gemv/],
      [withConfig({ zero_point: false }, awq), 'unsupported-model', /quantization_config\.zero_point/],
      [withConfig({ backend: 'llm-awq' }, awq), 'unsupported-model', /quantization_config\.backend/],
      [withConfig({ group_size: null }, awq), 'malformed-config', /quantization_config\.group_size/],
      [withConfig({ group_size: 0 }, awq), 'malformed-config', /quantization_config\.group_size/],
      [withConfig({ group_size: 64 }, awq), 'wrong-shape', /qzeros/],
      [withConfig({ bits: 3 }, gptq), 'unsupported-model', /quantization_config\.bits.*3 bits/],
      [withConfig({ bits: 8 }, gptq), 'wrong-shape', /qweight/],
      [withConfig({ checkpoint_format: 'marlin' }, gptq), 'unsupported-model', /checkpoint_format.*marlin/],
      [withConfig({ is_marlin_format: true }, gptq), 'unsupported-model', /is_marlin_format/],
      [withConfig({ pack_dtype: 'int16' }, gptq), 'unsupported-model', /pack_dtype.*int16/],
      [withConfig({ dynamic: { '+:.*down.*': { bits: 8 } } }, gptq), 'unsupported-model', /dynamic.*\+:\.\*down/],
      [withConfig({ desc_act: false }, reordered), 'malformed-weights', /g_idx" reorders/],
      [withConfig(weights({ type: 'float' }), packed), 'unsupported-model', /weights\.type/],
      [withConfig(weights({ num_bits: 2 }), packed), 'unsupported-model', /weights\.num_bits.*2 bits/],
      [withConfig(weights({ strategy: 'tensor' }), packed), 'unsupported-model', /weights\.strategy/],
      [withConfig(weights({ group_size: null }), packed), 'malformed-config', /weights\.group_size/],
      [withChangedTensor(`${GATE}.qweight`, () => null, awq), 'missing-tensor', /gate_proj\.qweight/],
      [withChangedTensor(`${GATE}.qzeros`, () => null, awq), 'missing-tensor', /gate_proj\.qzeros.*gate_proj\.weight/],
      [withChangedTensor(`${GATE}.scales`, () => null, gptq), 'missing-tensor', /gate_proj\.scales/],
      [withChangedTensor(`${GATE}.g_idx`, () => null, reordered), 'missing-tensor', /gate_proj\.g_idx/],
      [
        withChangedTensor(`${GATE}.g_idx`, withBytes(8, 5, 0, 0, 0), reordered),
        'malformed-weights',
        /group 5 at place 2/,
      ],
      [
        withChangedTensor(`${GATE}.g_idx`, withBytes(4, 255, 255, 255, 255), reordered),
        'malformed-weights',
        /group -1 at place 1/,
      ],
      [
        withChangedTensor(`${GATE}.scales`, withBytes(2, 0, 0x7c), gptq),
        'malformed-weights',
        /scales.*Infinity at place 1/,
      ],
      [withChangedTensor(`${GATE}.scales`, () => ({ dtype: 'I32' }), awq), 'malformed-weights', /scales/, null],
      [withChangedTensor(`${GATE}.weight_shape`, withBytes(0, 1), packed), 'wrong-shape', /weight_shape.*\[1, 160\]/],
      [withChangedTensor(`${GATE}.weight_zero_point`, () => null, packed), 'missing-tensor', /weight_zero_point/],
      [both, 'malformed-weights', /both.*gate_proj\.qweight/],
      [experts, 'unsupported-model', /"model\.layers\.0\.mlp\.experts/, null],
    ];
  };

  it('refuses unsupported and damaged checkpoints with a field and a hint; nothing stays in the cache', async () => {
    const compressed = SCHEMES['compressed-tensors, rows'];
    const weights = (change: object) => {
      const group = (compressed.quantization([]).config_groups as Record<string, { weights: object }>).group_0!;
      return { config_groups: { group_0: { ...group, weights: { ...group.weights, ...change } } } };
    };
    const cases: Refused[] = [
      [
        withConfig({ quant_method: 'bitsandbytes' }),
        'unsupported-model',
        /quantization_config\.quant_method.*bitsandb/,
      ],
      [withConfig({ quant_method: 4 }), 'malformed-config', /quantization_config\.quant_method/],
      [withConfig({ fmt: 'e5m2' }), 'unsupported-model', /quantization_config\.fmt.*e5m2/],
      [withConfig({ weight_block_size: [128] }), 'malformed-config', /quantization_config\.weight_block_size/],
      [withConfig({ weight_block_size: [0, 128] }), 'malformed-config', /quantization_config\.weight_block_size/],
      [withConfig({ weight_block_size: [64, 128] }), 'wrong-shape', /weight_scale_inv.*\[3, 2\]/],
      [withConfig({ modules_to_not_convert: [GATE] }), 'malformed-weights', /gate_proj.*excepts/],
      [withConfig({}, undefined, { model_type: 'llava' }), 'unsupported-model', /"quantization_config".*vision/],
      [withConfig({}, undefined, { hidden_act: 'gelu' }), 'unsupported-model', /hidden_act/, null],
      [withConfig({ format: 'int-quantized' }, compressed), 'unsupported-model', /format.*int-quantized/],
      [withConfig({ config_groups: {} }, compressed), 'unsupported-model', /config_groups/],
      [withConfig({ sparsity_config: { format: 'sparse-24' } }, compressed), 'unsupported-model', /sparsity_config/],
      [withConfig({ transform_config: { a: 1 } }, compressed), 'unsupported-model', /transform_config/],
      [withConfig(weights({ num_bits: 4 }), compressed), 'unsupported-model', /group_0\.weights\.type.*4 bits/],
      [withConfig(weights({ strategy: 'token' }), compressed), 'unsupported-model', /weights\.strategy.*token/],
      [withConfig(weights({ strategy: 'block' }), compressed), 'malformed-config', /weights\.block_structure/],
      [withConfig(weights({ symmetric: false }), compressed), 'unsupported-model', /weights\.symmetric/],
      [withConfig(weights({ dynamic: true }), compressed), 'unsupported-model', /weights\.dynamic/],
      [
        withChangedTensor(`${GATE}.weight_scale_inv`, () => null),
        'missing-tensor',
        /gate_proj\.weight_scale_inv.*gate_proj\.weight/,
      ],
      [withChangedTensor(`${GATE}.weight`, () => null), 'malformed-weights', /gate_proj.weight_scale_inv/],
      [withChangedTensor('model.norm.weight', () => null), 'missing-tensor', /model\.norm\.weight/],
      [
        withChangedTensor(`${GATE}.weight`, ({ shape }) => ({ shape: [...shape].reverse() })),
        'wrong-shape',
        /gate_proj\.weight/,
      ],
      [
        withChangedTensor(`${GATE}.weight_scale_inv`, () => ({ dtype: 'I32' })),
        'wrong-shape',
        /weight_scale_inv" is I32/,
      ],
      [
        withChangedTensor(`${GATE}.weight_scale_inv`, withBytes(0, 0, 0, 0xc0, 0x7f)),
        'malformed-weights',
        /scale NaN at place 0/,
      ],
      [
        withChangedTensor(`${GATE}.weight_scale_inv`, withBytes(8, 0, 0, 0x80, 0x7f)),
        'malformed-weights',
        /Infinity at place 2/,
      ],
      // This scale is finite, but its product with 448, the largest e4m3 value, is not.
      [
        withChangedTensor(`${GATE}.weight_scale_inv`, withBytes(4, 0, 0, 0x7f, 0x7f)),
        'malformed-weights',
        /e\+38 at place 1/,
      ],
      // A row has 160 values; 0xff is NaN.
      [withChangedTensor(`${GATE}.weight`, withBytes(161, 0xff)), 'malformed-weights', /gate_proj\.weight.*row 1/],
      ...groupedCases(),
    ];
    const cacheDirectory = await mkdtemp(join(directory, 'cache-'));
    for (const [checkpoint, code, message, givenHint] of cases) {
      const source = await write(checkpoint);
      const hint = givenHint === null ? undefined : HINTS[code];
      await assert.rejects(pullModel(`file:${source}`, { cacheDirectory }), { code, message, hint });
      const cachedNames = (await readdir(cacheDirectory)).filter((name) => name !== '.downloads');
      assert.deepEqual(cachedNames, [], String(message));
      assert.deepEqual((await readdir(source)).length, 4, 'config, weights and two tokenizer files stay');
    }
  });

  it('a pull converts a directory, and again after a change; the directory itself does not load', async () => {
    const cacheDirectory = await mkdtemp(join(directory, 'cache-'));
    const checkpoint = make(SCHEMES['fp8, tiles']);
    const source = await write(checkpoint);
    const pull = () => pullModel(`file:${source}`, { cacheDirectory });
    const first = await pull();
    assert.notEqual(first.directory, source);
    assert.deepEqual(await pull(), { ...first, cached: true });
    assert.equal((await listCached(cacheDirectory)).length, 1);
    assert.ok(errorOf(await loadModel(first.directory), checkpoint) <= ROUNDED_ONCE);
    await assert.rejects(loadModel(source), { message: /"quantization_config"/, hint: /pie models pull/ });

    const other = make(SCHEMES['fp8, one scale']);
    await writeCheckpoint(source, other, original.directory);
    assert.ok(errorOf(await loadModel((await pull()).directory), other) <= ROUNDED_ONCE);
  });

  it('converts a damaged checkpoint or fails with a ModelError', async () => {
    const all = Object.values(SCHEMES);
    const value = fc.oneof(fc.constant(null), fc.integer(), fc.string(), fc.constant([]), fc.constant({}), fc.double());
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(), fc.nat(), fc.nat(255), value, async (scheme, damage, at, byte, newValue) => {
        const checkpoint = make(all[scheme % all.length]!);
        const names = [...checkpoint.tensors.keys()];
        const name = names[at % names.length]!;
        const raw = checkpoint.tensors.get(name)!;
        const quantization = { ...(checkpoint.config.quantization_config as Record<string, unknown>) };
        const fields = Object.keys(quantization);
        if (damage % 5 === 0) checkpoint.tensors.delete(name);
        if (damage % 5 === 1) checkpoint.tensors.set(name, { ...raw, bytes: raw.bytes.map(() => byte) });
        if (damage % 5 === 2) checkpoint.tensors.set(name, { ...raw, shape: [...raw.shape, 1] });
        if (damage % 5 === 3) checkpoint.tensors.set(name, { ...raw, bytes: raw.bytes.subarray(1) });
        if (damage % 5 === 4) quantization[fields[at % fields.length]!] = newValue;
        try {
          await convert({ ...checkpoint, config: { ...checkpoint.config, quantization_config: quantization } });
        } catch (error) {
          assert.ok(error instanceof ModelError, String(error));
        }
      }),
      { seed: 1, numRuns: 40 },
    );
  });
});
