import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { adapterTensors, type LoadedAdapter, loadAdapter, PROJECTIONS, parseAdapterConfig } from './adapter.ts';
import { ModelError, type ModelErrorCode } from './errors.ts';
import type { LoadedModel } from './load.ts';
import { writeSafetensors } from './safetensors.ts';
import { randomAdapter, randomModel } from './testing/random-model.ts';

/** An adapter_config.json as PEFT 0.17 writes it; some of its members that are null are left out. */
const FILE = {
  auto_mapping: null,
  base_model_name_or_path: 'meta-llama/Llama-3.2-1B',
  bias: 'none',
  corda_config: null,
  eva_config: null,
  exclude_modules: null,
  fan_in_fan_out: false,
  inference_mode: true,
  init_lora_weights: true,
  layer_replication: null,
  layers_pattern: null,
  layers_to_transform: null,
  loftq_config: {},
  lora_alpha: 32,
  lora_bias: false,
  lora_dropout: 0.05,
  megatron_config: null,
  megatron_core: 'megatron.core',
  modules_to_save: null,
  peft_type: 'LORA',
  qalora_group_size: 16,
  r: 16,
  rank_pattern: {},
  alpha_pattern: {},
  revision: null,
  target_modules: ['v_proj', 'q_proj'],
  target_parameters: null,
  task_type: 'CAUSAL_LM',
  trainable_token_indices: null,
  use_dora: false,
  use_qalora: false,
  use_rslora: false,
};

function isRefused(code: ModelErrorCode, text: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ModelError);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, text);
    return true;
  };
}

describe('adapter_config.json', () => {
  it('gives rank, scale and targets', () => {
    // The scale is `lora_alpha / r` = 32 / 16; with rsLoRA it is `lora_alpha / √r` = 32 / 4.
    assert.deepEqual(parseAdapterConfig(FILE), { rank: 16, scale: 2, targets: ['q_proj', 'v_proj'] });
    assert.equal(parseAdapterConfig({ ...FILE, use_rslora: true }).scale, 8);
  });

  for (const [what, change, code, text] of [
    ['another type', { peft_type: 'IA3' }, 'unsupported-adapter', /"IA3"/],
    ['DoRA', { use_dora: true }, 'unsupported-adapter', /"use_dora": DoRA/],
    ['biases', { bias: 'lora_only' }, 'unsupported-adapter', /"bias".*lora_only/],
    ['low-rank biases', { lora_bias: true }, 'unsupported-adapter', /"lora_bias"/],
    ['whole modules', { modules_to_save: ['lm_head'] }, 'unsupported-adapter', /"modules_to_save"/],
    ['ranks by module', { rank_pattern: { q_proj: 4 } }, 'unsupported-adapter', /"rank_pattern"/],
    ['some layers', { layers_to_transform: [0] }, 'unsupported-adapter', /"layers_to_transform"/],
    ['changed weights', { init_lora_weights: 'pissa' }, 'unsupported-adapter', /"pissa"/],
    ['other modules', { target_modules: ['q_proj', 'embed_tokens'] }, 'unsupported-adapter', /"embed_tokens"/],
    ['a pattern', { target_modules: '.*_proj' }, 'unsupported-adapter', /pattern/],
    ['no modules', { target_modules: [] }, 'unsupported-adapter', /empty/],
    ['no rank', { r: undefined }, 'malformed-config', /"r"/],
    ['a rank of 0', { r: 0 }, 'malformed-config', /"r"/],
    ['a scale that is a text', { lora_alpha: 'much' }, 'malformed-config', /"lora_alpha"/],
  ] as const) {
    it(`is refused for ${what}`, () => {
      assert.throws(() => parseAdapterConfig({ ...FILE, ...change }), isRefused(code, text));
    });
  }
});

describe('loadAdapter', () => {
  let directory: string;
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-adapter-'));
    model = await randomModel(join(directory, 'model'), {}, 1);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /**
   * Writes and loads an adapter of `q_proj` and `down_proj`, whose numbers are all `value`. `change` maps the name and shape of each tensor to
   * the shape to write; null leaves the tensor out. The last tensor is `extra`, a name that no valid adapter has.
   */
  const writeAdapter = async (
    name: string,
    change: (tensor: string, shape: readonly number[]) => readonly number[] | null,
    value = 1,
  ): Promise<LoadedAdapter> => {
    const targets = ['q_proj', 'down_proj'] as const;
    const at = join(directory, name);
    await randomAdapter(at, model.config, 2, { rank: 4, targets });
    const tensors = [...adapterTensors(model.config, { rank: 4, targets }), ['extra', [1]] as const].flatMap(
      ([tensor, shape]) => {
        const newShape = change(tensor, shape);
        const data = () => new Float32Array((newShape ?? []).reduce((a, b) => a * b, 1)).fill(value);
        return newShape === null ? [] : [{ name: tensor, shape: newShape, data }];
      },
    );
    await writeSafetensors(join(at, 'adapter_model.safetensors'), tensors);
    return loadAdapter(at, model.config);
  };
  const withoutExtra = (tensor: string, shape: readonly number[]) => (tensor === 'extra' ? null : shape);
  const A = 'base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight';
  const B = 'base_model.model.model.layers.0.mlp.down_proj.lora_B.weight';

  it('reads the matrices of each projection that is a target', async () => {
    const { hiddenSize, intermediateSize, heads, headDim } = model.config;
    const adapter = await randomAdapter(join(directory, 'all'), model.config, 2, { rank: 4, alpha: 6 });
    assert.deepEqual([adapter.rank, adapter.scale, adapter.targets], [4, 1.5, PROJECTIONS]);
    const query = adapter.read(1, 'q_proj');
    assert.deepEqual([query?.a.length, query?.b.length], [4 * hiddenSize, 4 * heads * headDim]);
    const down = adapter.read(0, 'down_proj');
    assert.deepEqual([down?.a.length, down?.b.length], [4 * intermediateSize, 4 * hiddenSize]);
    const some = await writeAdapter('some', withoutExtra);
    assert.equal(some.read(0, 'v_proj'), undefined);
    const [rank, layers, bytesOfFloat] = [4, 2, 4];
    const queryValues = rank * hiddenSize + rank * heads * headDim;
    const downValues = rank * intermediateSize + rank * hiddenSize;
    assert.equal(some.bytes, bytesOfFloat * layers * (queryValues + downValues));
  });

  for (const [what, change, code, text] of [
    ['lacks a matrix', (t, s) => (t === A ? null : withoutExtra(t, s)), 'missing-tensor', /layers\.1.*q_proj\.lora_A/],
    [
      'has a matrix of another shape',
      (t, s) => (t === B ? [9, 4] : withoutExtra(t, s)),
      'wrong-shape',
      /\[9, 4\].*\[32, 4\]/,
    ],
    ['has a tensor that belongs to no projection', (_, s) => s, 'unsupported-adapter', /"extra"/],
  ] as const satisfies readonly (readonly [string, Parameters<typeof writeAdapter>[1], ModelErrorCode, RegExp])[]) {
    it(`refuses an adapter that ${what}`, async () => {
      await assert.rejects(writeAdapter(`bad ${what}`, change), isRefused(code, text));
    });
  }

  it('refuses a file that is not safetensors, and a directory without one', async () => {
    const at = join(directory, 'broken');
    await randomAdapter(at, model.config, 2);
    const file = join(at, 'adapter_model.safetensors');
    await writeFile(file, (await readFile(file)).subarray(0, 400));
    await assert.rejects(loadAdapter(at, model.config), isRefused('malformed-weights', /adapter_model/));
    await rm(file);
    await assert.rejects(loadAdapter(at, model.config), isRefused('missing-file', /adapter_model\.safetensors/));
    await assert.rejects(loadAdapter(directory, model.config), isRefused('missing-file', /adapter_config\.json/));
  });

  it('a read fails for numbers that are not finite, and for a file that changed after the check', async () => {
    const bad = await writeAdapter('infinite', withoutExtra, Number.POSITIVE_INFINITY);
    assert.throws(() => bad.read(0, 'q_proj'), isRefused('malformed-weights', /lora_A.*not finite/));
    const changed = await writeAdapter('changed', withoutExtra);
    await writeFile(join(changed.directory, 'adapter_model.safetensors'), 'something else');
    assert.throws(() => changed.read(0, 'q_proj'), isRefused('malformed-weights', /was changed/));
  });
});
