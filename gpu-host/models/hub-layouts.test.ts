import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ModelConfig } from './config.ts';
import { expectedTensors, type LoadedModel, loadModel } from './load.ts';
import { pullModel } from './pull.ts';
import { writeSafetensors } from './safetensors.ts';
import { FileServer } from './testing/file-server.ts';
import { randomModel } from './testing/random-model.ts';
import { loadTokenizer } from './tokenizer.ts';

/** A repository of the hub with tiny random weights: its files, their content, and the expected results. */
interface Layout {
  readonly model: Partial<ModelConfig>;
  /** Fields that this repository adds to the random model's config.json or replaces there. */
  readonly config: object;
  readonly shards: number;
  /** Names of the tokens 1 and 2. */
  readonly names: readonly [begin: string, end: string];
  readonly settings: object;
  readonly postProcessor: object | null;
  readonly generation?: object;
  /** The chat template, and the file that has it. */
  readonly template: string;
  readonly templateIn: 'tokenizer_config.json' | 'chat_template.jinja';
  /** Files of the repository that Pie does not need. */
  readonly others: readonly string[];
  /** The special tokens that the loaded tokenizer must have. */
  readonly special: { readonly bos: number | null; readonly eos: readonly number[] };
  /** The text that the template makes of {@link MESSAGES}. */
  readonly chat: string;
}

const MESSAGES = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Yes?' },
  { role: 'user', content: 'Bye' },
];

const byteLevel = { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true };
const withBegin = (name: string) => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: name, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
  special_tokens: { [name]: { id: name, ids: [1], tokens: [name] } },
});
const llama: Pick<Layout, 'names' | 'settings' | 'postProcessor' | 'template' | 'templateIn' | 'special' | 'chat'> = {
  names: ['<|begin_of_text|>', '<|eot_id|>'],
  settings: { bos_token: '<|begin_of_text|>', eos_token: '<|eot_id|>', tokenizer_class: 'PreTrainedTokenizerFast' },
  postProcessor: { type: 'Sequence', processors: [byteLevel, withBegin('<|begin_of_text|>')] },
  template:
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
  templateIn: 'tokenizer_config.json',
  special: { bos: 1, eos: [2, 5, 6] },
  chat: '<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
};
const chatMl = (system: string): Pick<Layout, 'template' | 'chat'> => ({
  template: `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '${system.replaceAll('\n', '\\n')}' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`,
  chat: `${system}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n`,
});
const qwen: Pick<Layout, 'names' | 'settings' | 'postProcessor' | 'generation' | 'templateIn' | 'others' | 'special'> =
  {
    names: ['<|endoftext|>', '<|im_end|>'],
    settings: { add_bos_token: false, bos_token: null, eos_token: '<|im_end|>', pad_token: '<|endoftext|>' },
    postProcessor: byteLevel,
    generation: { bos_token_id: 1, eos_token_id: [2, 1] },
    templateIn: 'tokenizer_config.json',
    others: ['LICENSE', 'README.md', 'merges.txt', 'vocab.json'],
    special: { bos: null, eos: [2, 1] },
  };

const LAYOUTS: Readonly<Record<string, Layout>> = {
  'meta-llama/Llama-3.2-1B-Instruct': {
    ...llama,
    model: { tiedEmbeddings: true, ropeTheta: 500_000 },
    config: {
      attention_bias: false,
      mlp_bias: false,
      pretraining_tp: 1,
      torch_dtype: 'bfloat16',
      eos_token_id: [2, 5],
    },
    shards: 1,
    generation: { bos_token_id: 1, eos_token_id: [2, 5, 6] },
    others: [
      'LICENSE.txt',
      'USE_POLICY.md',
      'original/consolidated.00.pth',
      'original/params.json',
      'original/tokenizer.model',
    ],
  },
  'meta-llama/Llama-3.1-8B-Instruct': {
    ...llama,
    model: {
      ropeScaling: {
        type: 'llama3',
        factor: 8,
        lowFrequencyFactor: 1,
        highFrequencyFactor: 4,
        originalContextLength: 64,
      },
    },
    config: { head_dim: undefined, tie_word_embeddings: undefined, eos_token_id: [2, 5] },
    shards: 4,
    generation: { eos_token_id: [2, 5, 6] },
    others: ['original/consolidated.00.pth'],
  },
  'Qwen/Qwen2.5-7B-Instruct': {
    ...qwen,
    ...chatMl('<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n'),
    model: { family: 'qwen2' },
    config: { head_dim: undefined, sliding_window: 131_072, use_sliding_window: false, max_window_layers: 28 },
    shards: 4,
  },
  'Qwen/Qwen3-0.6B': {
    ...qwen,
    ...chatMl(''),
    model: { family: 'qwen3', headDim: 16, tiedEmbeddings: true },
    config: { attention_bias: false, sliding_window: null, use_sliding_window: false, max_window_layers: 28 },
    shards: 1,
  },
  'mistralai/Mistral-7B-Instruct-v0.3': {
    model: { family: 'mistral' },
    config: { sliding_window: null, attention_dropout: 0.0, use_cache: true },
    shards: 3,
    names: ['<s>', '</s>'],
    settings: { add_bos_token: true, add_eos_token: false, bos_token: '<s>', eos_token: '</s>', legacy: false },
    postProcessor: withBegin('<s>'),
    template:
      "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    templateIn: 'chat_template.jinja',
    others: ['consolidated.safetensors', 'params.json', 'tokenizer.model', 'tokenizer.model.v3'],
    special: { bos: 1, eos: [2] },
    chat: '<s>[INST] Hi [/INST]Yes?</s>[INST] Bye [/INST]',
  },
  'HuggingFaceTB/SmolLM2-135M-Instruct': {
    ...chatMl('<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n'),
    model: { heads: 6, kvHeads: 2, tiedEmbeddings: true },
    config: { is_llama_config: true, rope_interleaved: false, 'transformers.js_config': { kv_cache_dtype: {} } },
    shards: 1,
    names: ['<|im_start|>', '<|im_end|>'],
    settings: {
      add_prefix_space: false,
      bos_token: '<|im_start|>',
      eos_token: '<|im_end|>',
      pad_token: '<|im_end|>',
      tokenizer_class: 'GPT2Tokenizer',
      unk_token: '<unk>',
    },
    postProcessor: byteLevel,
    templateIn: 'tokenizer_config.json',
    others: ['all_results.json', 'merges.txt', 'onnx/model.onnx', 'vocab.json'],
    special: { bos: null, eos: [2, 1] },
  },
};

describe('repositories of the hub', () => {
  let directory: string;
  let server: FileServer;
  const endpoint = process.env.HF_ENDPOINT;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-hub-'));
    server = await FileServer.start();
    process.env.HF_ENDPOINT = server.url;
  });
  after(async () => {
    if (endpoint === undefined) delete process.env.HF_ENDPOINT;
    else process.env.HF_ENDPOINT = endpoint;
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });

  for (const [id, layout] of Object.entries(LAYOUTS)) {
    it(`${id}: a pull keeps the needed files, and the model and its tokenizer load as expected`, async () => {
      const { model, wanted } = await serve(id, layout);
      const pulled = await pullModel(`hf:${id}`, { cacheDirectory: join(directory, 'cache') });
      assert.deepEqual((await readdir(pulled.directory)).sort(), [...wanted, 'pie-model.json'].sort());

      const loaded = await loadModel(pulled.directory);
      // The layouts add end tokens, which `layout.special` checks below.
      assert.deepEqual({ ...loaded.config, eosTokenIds: [] }, { ...model.config, eosTokenIds: [] });
      for (const [name] of expectedTensors(model.config))
        assert.deepEqual(loaded.tensors.read(name), model.tensors.read(name), name);

      const tokenizer = await loadTokenizer(pulled.directory);
      const { bos, eos } = tokenizer.special;
      assert.deepEqual({ bos, eos }, layout.special);
      assert.equal(tokenizer.applyChatTemplate(MESSAGES, true), layout.chat);
      assert.deepEqual([...tokenizer.encode(layout.names.join(''), { special: true })], [1, 2]);
      assert.ok(!tokenizer.encode(layout.names.join('')).some((token) => token === 1 || token === 2));
    });
  }

  /** Puts a repository on the server. Returns its model, and the names of the files that a pull must keep. */
  async function serve(id: string, layout: Layout): Promise<{ model: LoadedModel; wanted: string[] }> {
    const model = await randomModel(await mkdtemp(join(directory, 'model-')), layout.model, 4);
    const folder = await mkdtemp(join(directory, 'repository-'));
    const write = (name: string, value: unknown) =>
      writeFile(join(folder, name), typeof value === 'string' ? value : JSON.stringify(value));
    const read = async (name: string) => JSON.parse(await readFile(join(model.directory, name), 'utf8'));
    const [begin, end] = layout.names;

    await write('config.json', { ...(await read('config.json')), ...layout.config });
    const text = JSON.stringify({ ...(await read('tokenizer.json')), post_processor: null });
    // The random model's tokenizer has the names `<s>` and `</s>` for the tokens 1 and 2.
    const renamed = JSON.parse(
      text.replaceAll('"<s>"', JSON.stringify(begin)).replaceAll('"</s>"', JSON.stringify(end)),
    );
    await write('tokenizer.json', { ...renamed, post_processor: layout.postProcessor });
    const inSettings = layout.templateIn === 'tokenizer_config.json';
    await write('tokenizer_config.json', { ...layout.settings, ...(inSettings && { chat_template: layout.template }) });
    if (!inSettings) await write(layout.templateIn, layout.template);
    if (layout.generation) await write('generation_config.json', layout.generation);
    await writeShards(model, layout.shards, folder);
    const wanted = await readdir(folder);

    for (const name of layout.others) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await write(name, 'not for Pie');
    }
    for (const name of [...wanted, ...layout.others])
      server.files.set(`/${id}/resolve/main/${name}`, { bytes: await readFile(join(folder, name)) });
    return { model, wanted };
  }
});

/** Writes the weights as transformers does: one file, or shards with an index. */
async function writeShards({ config, tensors }: LoadedModel, shards: number, folder: string): Promise<void> {
  const names = expectedTensors(config).map(([name]) => name);
  const tensorsPerShard = Math.ceil(names.length / shards);
  const weight_map: Record<string, string> = {};
  const number = (i: number) => String(i).padStart(5, '0');
  for (let shard = 0; shard < shards; shard++) {
    const file = shards === 1 ? 'model.safetensors' : `model-${number(shard + 1)}-of-${number(shards)}.safetensors`;
    const sources = names.slice(shard * tensorsPerShard, (shard + 1) * tensorsPerShard).map((name) => {
      weight_map[name] = file;
      return { name, shape: tensors.info(name).shape, data: () => tensors.read(name) };
    });
    await writeSafetensors(join(folder, file), sources);
  }
  if (shards > 1)
    await writeFile(
      join(folder, 'model.safetensors.index.json'),
      JSON.stringify({ metadata: { total_size: 1 }, weight_map }),
    );
}
