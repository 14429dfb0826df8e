import { join, resolve } from 'node:path';
import { checkTensors, openTensors, readJson, readOptionalJson, type TensorStore } from '../load.ts';
import { type EncoderConfig, type EncoderKind, parseEncoderConfig } from './config.ts';
import { encoderTensors, expectedEncoderTensors } from './tensors.ts';

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
