import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { configToJson } from '#gpu-host/models/config.ts';
import { expectedTensors } from '#gpu-host/models/load.ts';
import { writeSafetensors } from '#gpu-host/models/safetensors.ts';
import { tinyConfig, writePlainTokenizer } from '#gpu-host/models/testing/random-model.ts';

/** The special tokens of the plain tokenizer, which come before the bytes. */
const SPECIAL_TOKENS = 3;
/** The text that the model writes again and again. No byte occurs twice, because the next byte depends only on the last. */
const SENTENCE = ' abcdefghijklmnopqr.';
const HIDDEN = 32;
/** Scale of the logits, large enough to make the next byte certain. */
const SHARPNESS = 4;

/**
 * Writes a model in Hugging Face layout. After any prompt, the model generates sentences of 20 tokens, one byte a token: paced engines need
 * the amount of work, not its meaning. The model's one layer adds nothing, so the next byte follows from the embedding of the last one.
 */
export async function writingModel(directory: string): Promise<void> {
  const config = tinyConfig({
    hiddenSize: HIDDEN,
    intermediateSize: 8,
    layers: 1,
    heads: 1,
    kvHeads: 1,
    headDim: 8,
    vocabularySize: SPECIAL_TOKENS + 256,
    contextLength: 8192,
  });
  const sentenceTokens = [...SENTENCE].map((letter) => SPECIAL_TOKENS + letter.charCodeAt(0));
  const lastPosition = sentenceTokens.length - 1;
  const dataOf = (name: string, shape: readonly number[]): Float32Array => {
    const values = new Float32Array(shape.reduce((product, dimension) => product * dimension, 1));
    if (name.endsWith('norm.weight')) values.fill(1);
    const isInput = name.includes('embed_tokens');
    if (!isInput && !name.includes('lm_head')) return values;
    for (let token = 0; token < config.vocabularySize; token++) {
      const position = sentenceTokens.indexOf(token);
      // The embedding of a byte sets the dimension of its position; the head reads that of the position before. Bytes outside of the sentence count
      // as its last byte, so that the sentence begins after them.
      if (isInput) values[token * HIDDEN + (position < 0 ? lastPosition : position)] = 1;
      else if (position >= 0) values[token * HIDDEN + (position === 0 ? lastPosition : position - 1)] = SHARPNESS;
    }
    return values;
  };
  const tensors = expectedTensors(config).map(([name, shape]) => ({ name, shape, data: () => dataOf(name, shape) }));
  await mkdir(directory, { recursive: true });
  await writeFile(path.join(directory, 'config.json'), JSON.stringify(configToJson(config)));
  await writeSafetensors(path.join(directory, 'model.safetensors'), tensors);
  await writePlainTokenizer(directory, config.vocabularySize);
}
