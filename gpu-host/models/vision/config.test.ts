import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseConfig } from '../config.ts';
import { ModelError } from '../errors.ts';
import { randomVisionModel } from '../testing/random-vision-model.ts';
import { parseVision } from './config.ts';
import { readVision } from './read.ts';

/** The config.json of llava-hf/llava-1.5-7b-hf, which leaves out the defaults of transformers. */
const LLAVA_15 = {
  architectures: ['LlavaForConditionalGeneration'],
  ignore_index: -100,
  image_token_index: 32000,
  model_type: 'llava',
  pad_token_id: 32001,
  projector_hidden_act: 'gelu',
  text_config: {
    _name_or_path: 'lmsys/vicuna-7b-v1.5',
    architectures: ['LlamaForCausalLM'],
    max_position_embeddings: 4096,
    model_type: 'llama',
    rms_norm_eps: 1e-5,
    torch_dtype: 'float16',
    vocab_size: 32064,
  },
  tie_word_embeddings: false,
  vision_config: {
    hidden_size: 1024,
    image_size: 336,
    intermediate_size: 4096,
    model_type: 'clip_vision_model',
    num_attention_heads: 16,
    num_hidden_layers: 24,
    patch_size: 14,
    projection_dim: 768,
    vocab_size: 32000,
  },
  vision_feature_layer: -2,
  vision_feature_select_strategy: 'default',
  vocab_size: 32064,
};
const PREPROCESSOR = {
  crop_size: { height: 336, width: 336 },
  do_center_crop: true,
  do_convert_rgb: true,
  do_normalize: true,
  do_rescale: true,
  do_resize: true,
  image_mean: [0.48145466, 0.4578275, 0.40821073],
  image_processor_type: 'CLIPImageProcessor',
  image_std: [0.26862954, 0.26130258, 0.27577711],
  resample: 3,
  rescale_factor: 0.00392156862745098,
  size: { shortest_edge: 336 },
};

const parse = (changes: object = {}, preprocessor: object = {}) => {
  const file = { ...LLAVA_15, ...changes };
  return parseVision(file, { ...PREPROCESSOR, ...preprocessor }, parseConfig(file));
};
const withTower = (changes: object) => ({ vision_config: { ...LLAVA_15.vision_config, ...changes } });

describe('configs of models that take images', () => {
  it('reads LLaVA 1.5, whose config omits defaults', () => {
    const text = parseConfig(LLAVA_15);
    assert.deepEqual(
      [
        text.family,
        text.hiddenSize,
        text.layers,
        text.heads,
        text.vocabularySize,
        text.contextLength,
        text.eosTokenIds,
      ],
      ['llama', 4096, 32, 32, 32_064, 4096, [2]],
    );
    const vision = parse();
    // Feature layer −2 of 24 is the output of layer 23. An image has (336 / 14)² = 576 patches.
    assert.deepEqual(
      [vision?.layers, vision?.embeds, vision?.embedSize, vision?.activation, vision?.layerNormEpsilon],
      [23, 576, 4096, 'quick-gelu', 1e-5],
    );
    assert.deepEqual(
      [vision?.preparation.shortestEdge, vision?.preparation.filter, vision?.preparation.pad],
      [336, 'bicubic', null],
    );
  });

  it('reads the token that stands for an image under both of its names, if the vocabulary has it', () => {
    const token = (changes: object) => parse(changes)?.imageToken;
    assert.equal(token({}), 32_000);
    assert.equal(token({ image_token_index: undefined, image_token_id: 32_001 }), 32_001);
    assert.deepEqual(
      [{ image_token_index: undefined }, { image_token_index: 32_064 }, { image_token_index: -1 }].map(token),
      [null, null, null],
    );
  });

  it('counts the class token with the strategy `full`, and only patches for a SigLIP tower', () => {
    assert.equal(parse({ vision_feature_select_strategy: 'full' })?.embeds, 576 + 1);
    const siglip = parse(
      {
        ...withTower({ model_type: 'siglip_vision_model', image_size: 384 }),
        vision_feature_select_strategy: 'full',
        vision_feature_layer: -1,
      },
      { image_processor_type: 'SiglipImageProcessor', size: { height: 384, width: 384 }, do_pad: null },
    );
    // A side of 384 pixels has 27 whole patches of 14.
    assert.deepEqual(
      [siglip?.layers, siglip?.activation, siglip?.preparation.shortestEdge, siglip?.embeds],
      [24, 'gelu-tanh', null, 27 * 27],
    );
    assert.throws(() => parse({}, { size: { height: 384, width: 384 } }), ModelError);
  });

  it('reads all forms of preprocessor files', () => {
    const old = {
      size: 336,
      crop_size: 336,
      image_processor_type: undefined,
      feature_extractor_type: 'CLIPFeatureExtractor',
    };
    assert.deepEqual(parse({}, old)?.preparation, parse()?.preparation);
    const padded = parse({}, { image_processor_type: 'LlavaImageProcessorFast', do_pad: true });
    // 255 × `image_mean`, without the fraction.
    assert.deepEqual(padded?.preparation.pad, [122, 116, 104]);
    const plain = parse({}, { do_rescale: false, do_normalize: false })?.preparation;
    assert.deepEqual([plain?.scale, plain?.mean, plain?.deviation], [1, [0, 0, 0], [1, 1, 1]]);
  });

  const REFUSED: Readonly<Record<string, readonly [reason: RegExp, config: object, preprocessor?: object]>> = {
    'another tower': [/"pixtral"/, withTower({ model_type: 'pixtral' })],
    'another activation': [/"relu"/, withTower({ hidden_act: 'relu' })],
    'an activation with the name of a property of every object': [
      /"constructor"/,
      withTower({ hidden_act: 'constructor' }),
    ],
    'more channels': [/4 channels/, withTower({ num_channels: 4 })],
    'images smaller than a patch': [/patches of 400/, withTower({ patch_size: 400 })],
    'images too large for a frame of the protocol': [/more than 1024 pixels/, withTower({ image_size: 1400 })],
    'heads that do not fit': [/15 heads/, withTower({ num_attention_heads: 15 })],
    'several feature layers': [/several layers/, { vision_feature_layer: [-2, -5] }],
    'a layer that is not there': [/"vision_feature_layer": layer 25 of 24/, { vision_feature_layer: 25 }],
    'another strategy': [/"pooled"/, { vision_feature_select_strategy: 'pooled' }],
    'SigLIP with a strategy that leaves out the class token': [
      /no class token/,
      withTower({ model_type: 'siglip_vision_model' }),
    ],
    'quantised weights': [/quantised/, { quantization_config: { bits: 4 } }],
    'another text model': [/"gemma"/, { text_config: { model_type: 'gemma' } }],
    'no text model': [/"text_config"/, { text_config: undefined }],
    'another processor': [/"LlavaNextImageProcessor"/, {}, { image_processor_type: 'LlavaNextImageProcessor' }],
    'another filter': [/resample 0/, {}, { resample: 0 }],
    'a cut of another size': [/cut to another size/, {}, { crop_size: { height: 224, width: 224 } }],
    'a resize below the cut': [/resized to 224/, {}, { size: { shortest_edge: 224 } }],
    'no cut': [/not cut/, {}, { do_center_crop: false }],
    'no resize': [/not resized/, {}, { do_resize: false }],
    'a mean of two colours': [/"image_mean"/, {}, { image_mean: [0.5, 0.5] }],
    'a deviation of zero': [/"image_std/, {}, { image_std: [0.5, 0, 0.5] }],
  };
  for (const [name, [reason, config, preprocessor]] of Object.entries(REFUSED)) {
    it(`refuses ${name}, with a reason`, () => {
      assert.throws(
        () => parse(config, preprocessor),
        (error) => {
          assert.ok(error instanceof ModelError);
          assert.match(error.message, reason);
          return error.code === 'unsupported-model' || error.code === 'malformed-config';
        },
      );
    });
  }

  it('refuses a model without its preprocessor', () => {
    assert.throws(
      () => parseVision(LLAVA_15, undefined, parseConfig(LLAVA_15)),
      /preprocessor_config\.json is missing/,
    );
  });
});

describe('models that take images on disk', () => {
  let directory: string;
  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'pie-llava-'));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  it('reads the same weights under every set of names, and reads the vision part of the config alone', async () => {
    const models = await Promise.all(
      (['first', 'flat', 'nested'] as const).map((names) => randomVisionModel(join(directory, names), { names }, 4)),
    );
    for (const name of ['model.norm.weight', 'lm_head.weight', 'vision_tower.encoder.layers.1.mlp.fc1.bias']) {
      const [first, ...others] = models.map(({ tensors }) => tensors.read(name));
      for (const other of others) assert.deepEqual(other, first);
    }
    assert.deepEqual(await readVision(models[0]!.directory), models[0]!.vision);
  });
});
