import { join, resolve } from 'node:path';
import { checkTensors, openTensors, readJson, readOptionalJson, type TensorStore } from '../load.ts';
import { type EncoderConfig, type EncoderKind, parseEncoderConfig } from './config.ts';

/** An encoder in Hugging Face layout with checked names and shapes. `tensors` reads weights on demand. */
export interface LoadedEncoder {
  /** Absolute path of the directory with config.json, the weights and the tokenizer. */
  readonly directory: string;
  readonly config: EncoderConfig;
  /** Named as in `expectedEncoderTensors`. */
  readonly tensors: TensorStore;
}

/**
 * Opens the directory of an encoder: `config.json` with safetensors weights, and sentence-transformers' files where they exist.
 *
 * @throws ModelError naming the file, the field, the missing tensor or the tensor of a wrong shape
 */
export async function loadEncoder(directory: string, kind: EncoderKind): Promise<LoadedEncoder> {
  const root = resolve(directory);
  const config = await readEncoderConfig(root, kind);
  const tensors = encoderTensors(await openTensors(root));
  checkTensors(expectedEncoderTensors(config), tensors);
  return { directory: root, config, tensors };
}

/** Reads an encoder's parameters without its weights. Throws ModelError. */
export async function readEncoderConfig(directory: string, kind: EncoderKind): Promise<EncoderConfig> {
  return parseEncoderConfig(await readJson(join(directory, 'config.json')), kind, {
    modules: await readOptionalJson(directory, 'modules.json'),
    pooling: await readOptionalJson(directory, join('1_Pooling', 'config.json')),
    sentence: await readOptionalJson(directory, 'sentence_bert_config.json'),
    library: await readOptionalJson(directory, 'config_sentence_transformers.json'),
  });
}

/**
 * Every tensor of an encoder with this config, in the order of the forward pass. The names are those that transformers' BertModel or ModernBertModel
 * writes, without a prefix.
 */
export function expectedEncoderTensors(config: EncoderConfig): [name: string, shape: readonly number[]][] {
  if (config.family === 'modernbert') return modernTensors(config);
  const { family, hiddenSize: hidden, intermediateSize: intermediate } = config;
  const expected: [string, readonly number[]][] = [];
  const norm = (name: string): void => void expected.push([`${name}.weight`, [hidden]], [`${name}.bias`, [hidden]]);
  const linear = (name: string, rows: number, columns: number): void =>
    void expected.push([`${name}.weight`, [rows, columns]], [`${name}.bias`, [rows]]);
  expected.push(
    ['embeddings.word_embeddings.weight', [config.vocabularySize, hidden]],
    ['embeddings.position_embeddings.weight', [config.positions, hidden]],
    ['embeddings.token_type_embeddings.weight', [config.tokenTypes, hidden]],
  );
  norm('embeddings.LayerNorm');
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `encoder.layer.${layer}`;
    for (const part of ['query', 'key', 'value']) linear(`${prefix}.attention.self.${part}`, hidden, hidden);
    linear(`${prefix}.attention.output.dense`, hidden, hidden);
    norm(`${prefix}.attention.output.LayerNorm`);
    linear(`${prefix}.intermediate.dense`, intermediate, hidden);
    linear(`${prefix}.output.dense`, hidden, intermediate);
    norm(`${prefix}.output.LayerNorm`);
  }
  if (config.head.kind === 'reranker') {
    const { dense, score } = headNames(family);
    linear(dense, hidden, hidden);
    linear(score, 1, hidden);
  }
  return expected;
}

function modernTensors(config: EncoderConfig): [name: string, shape: readonly number[]][] {
  const { hiddenSize: hidden, intermediateSize: intermediate } = config;
  const expected: [string, readonly number[]][] = [
    ['embeddings.tok_embeddings.weight', [config.vocabularySize, hidden]],
    ['embeddings.norm.weight', [hidden]],
  ];
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `layers.${layer}`;
    // The first layer has no norm before its attention, because the embeddings are normalised already.
    if (layer > 0) expected.push([`${prefix}.attn_norm.weight`, [hidden]]);
    expected.push(
      [`${prefix}.attn.Wqkv.weight`, [3 * hidden, hidden]],
      [`${prefix}.attn.Wo.weight`, [hidden, hidden]],
      [`${prefix}.mlp_norm.weight`, [hidden]],
      [`${prefix}.mlp.Wi.weight`, [2 * intermediate, hidden]],
      [`${prefix}.mlp.Wo.weight`, [hidden, intermediate]],
    );
  }
  expected.push(['final_norm.weight', [hidden]]);
  if (config.head.kind === 'reranker') {
    expected.push(
      ['head.dense.weight', [hidden, hidden]],
      ['head.norm.weight', [hidden]],
      ['classifier.weight', [1, hidden]],
      ['classifier.bias', [1]],
    );
  }
  return expected;
}

/** The two layers of a reranker's head: a dense layer with a tanh, and the score. */
export function headNames(family: 'bert' | 'roberta'): { readonly dense: string; readonly score: string } {
  return family === 'bert'
    ? { dense: 'pooler.dense', score: 'classifier' }
    : { dense: 'classifier.dense', score: 'classifier.out_proj' };
}

/** Prefixes that the names in a checkpoint may have: none if it holds only the encoder, else the encoder's name within a larger model. */
export const ENCODER_PREFIXES = ['', 'bert.', 'roberta.', 'model.'] as const;

/** The tensors of a checkpoint under the names of {@link expectedEncoderTensors}. */
export function encoderTensors(stored: TensorStore): TensorStore {
  const writtenAs = (name: string): string => {
    // Checkpoints converted from TensorFlow use other names for a norm's parameters.
    const names = [
      name,
      name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta'),
    ];
    const candidates = names.flatMap((each) => ENCODER_PREFIXES.map((prefix) => prefix + each));
    return candidates.find((candidate) => stored.has(candidate)) ?? name;
  };
  return {
    has: (name) => stored.has(writtenAs(name)),
    info: (name) => stored.info(writtenAs(name)),
    read: (name) => stored.read(writtenAs(name)),
  };
}
