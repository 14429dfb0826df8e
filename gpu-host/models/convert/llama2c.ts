import { createHash } from 'node:crypto';
import { type FileHandle, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { configToJson, type ModelConfig, plainTraits } from '../config.ts';
import { causeText, ModelError } from '../errors.ts';
import { expectedTensors } from '../load.ts';
import { type TensorSource, writeSafetensors } from '../safetensors.ts';
import { halvesOfHeads } from './matrices.ts';
import { parseTokenizerBin, sentencePieceTokenizer } from './sentencepiece.ts';

const HEADER_BYTES = 28;

/** Locations of a llama2.c model's checkpoint and tokenizer; one file may hold both. */
export interface Llama2cFiles {
  readonly checkpoint: FileSlice;
  readonly tokenizer: FileSlice;
}

/** `bytes` bytes of a file from `offset` (0 by default); without `bytes`, the rest of the file. */
export interface FileSlice {
  readonly file: string;
  readonly offset?: number;
  readonly bytes?: number;
  /** Expected hash of the bytes, hexadecimal; the conversion fails on a mismatch. */
  readonly sha256?: string;
}

/**
 * Converts a llama2.c checkpoint and its tokenizer.bin to Hugging Face layout in `directory`.
 *
 * llama2.c rotates neighbouring pairs of a head (0 with 1, 2 with 3, …), Hugging Face rotates the first half of a head against the second. The
 * conversion reorders the rows of the q and k projections accordingly. Attention scores stay the same, so the result is a standard Llama.
 *
 * @see https://github.com/karpathy/llama2.c/blob/master/run.c (`memory_map_weights`, `build_tokenizer`)
 * @throws ModelError `missing-file`, `malformed-weights`, `malformed-tokenizer` or `checksum-mismatch`
 */
export async function convertLlama2c(
  files: Llama2cFiles,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const checkpoint = await readSlice(files.checkpoint);
  const config = readHeader(checkpoint, files.checkpoint.file);
  const pieces = parseTokenizerBin(await readSlice(files.tokenizer), config.vocabularySize);
  const tokenizer = sentencePieceTokenizer(pieces);
  await writeSafetensors(join(directory, 'model.safetensors'), tensorsOf(config, checkpoint), onProgress);
  const json = (name: string, value: unknown) =>
    writeFile(join(directory, name), `${JSON.stringify(value, null, 1)}\n`);
  await json('config.json', configToJson(config));
  await json('tokenizer.json', tokenizer);
  await json('tokenizer_config.json', {
    tokenizer_class: 'LlamaTokenizer',
    bos_token: '<s>',
    eos_token: '</s>',
    unk_token: '<unk>',
    add_bos_token: true,
    add_eos_token: false,
    clean_up_tokenization_spaces: false,
    model_max_length: config.contextLength,
  });
}

function readHeader(checkpoint: Buffer, file: string): ModelConfig {
  if (checkpoint.length < HEADER_BYTES)
    throw new ModelError('malformed-weights', `${file}: too short for a llama2.c checkpoint`);
  const [hidden, intermediate, layers, heads, kvHeads, signedVocabulary, context] = Array.from({ length: 7 }, (_, i) =>
    checkpoint.readInt32LE(4 * i),
  ) as [number, number, number, number, number, number, number];
  const isPlausible =
    [hidden, intermediate, layers, heads, kvHeads, context].every((value) => value > 0 && value < 1 << 20) &&
    hidden % heads === 0 &&
    heads % kvHeads === 0 &&
    (hidden / heads) % 2 === 0 &&
    signedVocabulary !== 0;
  if (!isPlausible) throw new ModelError('malformed-weights', `${file}: not a llama2.c checkpoint (version 0)`);
  return {
    ...plainTraits(hidden / heads),
    family: 'llama',
    hiddenSize: hidden,
    intermediateSize: intermediate,
    layers,
    heads,
    kvHeads,
    headDim: hidden / heads,
    // A negative vocabulary size means that the checkpoint has an output projection of its own, so the embeddings are not tied.
    vocabularySize: Math.abs(signedVocabulary),
    contextLength: context,
    ropeTheta: 10_000,
    ropeScaling: null,
    rmsNormEpsilon: 1e-5,
    tiedEmbeddings: signedVocabulary > 0,
    bosTokenId: 1,
    // The training data separates texts by BOS only, and llama2.c stops at BOS; 2 is the vocabulary's own end token.
    eosTokenIds: [2, 1],
  };
}

/** Every Hugging Face tensor, read from its piece of the checkpoint, in Hugging Face's order. */
function tensorsOf(config: ModelConfig, checkpoint: Buffer): TensorSource[] {
  const { hiddenSize: hidden, intermediateSize: intermediate, layers, vocabularySize, headDim } = config;
  const queries = config.heads * headDim;
  const keys = config.kvHeads * headDim;
  let position = HEADER_BYTES;
  /** Takes the next section, which holds one kind of tensor for all layers in sequence. Returns a function that reads the tensor of a layer. */
  const section = (perLayer: number, count = layers) => {
    const start = position;
    position += 4 * perLayer * count;
    return (layer = 0) => {
      const bytes = checkpoint.subarray(start + 4 * perLayer * layer, start + 4 * perLayer * (layer + 1));
      // Copy the bytes, because the checkpoint need not align its floats.
      return new Float32Array(new Uint8Array(bytes).buffer);
    };
  };
  const embedding = section(vocabularySize * hidden, 1);
  const attentionNorm = section(hidden);
  const q = section(queries * hidden);
  const k = section(keys * hidden);
  const v = section(keys * hidden);
  const o = section(hidden * queries);
  const feedForwardNorm = section(hidden);
  const gate = section(intermediate * hidden);
  const down = section(hidden * intermediate);
  const up = section(intermediate * hidden);
  const norm = section(hidden, 1);
  section(config.contextLength * headDim, 1); // skips the tables of cosines and sines
  const head = config.tiedEmbeddings ? embedding : section(vocabularySize * hidden, 1);
  if (position !== checkpoint.length) {
    throw new ModelError(
      'malformed-weights',
      `the llama2.c checkpoint has ${checkpoint.length} bytes, its header implies ${position}`,
    );
  }

  const halves = (rows: Float32Array) =>
    new Float32Array(halvesOfHeads(new Uint8Array(rows.buffer), 4 * hidden, headDim).buffer);
  const sources: Record<string, (layer: number) => Float32Array> = {
    'input_layernorm.weight': attentionNorm,
    'self_attn.q_proj.weight': (layer) => halves(q(layer)),
    'self_attn.k_proj.weight': (layer) => halves(k(layer)),
    'self_attn.v_proj.weight': v,
    'self_attn.o_proj.weight': o,
    'post_attention_layernorm.weight': feedForwardNorm,
    'mlp.gate_proj.weight': gate,
    'mlp.up_proj.weight': up,
    'mlp.down_proj.weight': down,
    'model.embed_tokens.weight': embedding,
    'model.norm.weight': norm,
    'lm_head.weight': head,
  };
  return expectedTensors(config).map(([name, shape]) => {
    const [, layer, inLayer] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
    const source = sources[inLayer ?? name];
    if (source === undefined) throw new ModelError('missing-tensor', `llama2.c checkpoints have no "${name}"`);
    return { name, shape, data: () => source(Number(layer ?? 0)) };
  });
}

async function readSlice(slice: FileSlice): Promise<Buffer> {
  const handle = await open(slice.file, 'r').catch((cause: unknown) => {
    throw new ModelError('missing-file', `${slice.file} cannot be read: ${causeText(cause)}`, {
      cause,
      hint: 'a llama2.c checkpoint needs its tokenizer.bin in the same folder',
    });
  });
  let bytes: Buffer;
  try {
    bytes = await readAt(handle, slice);
  } finally {
    await handle.close();
  }
  if (slice.sha256 !== undefined) {
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found !== slice.sha256) {
      throw new ModelError(
        'checksum-mismatch',
        `${slice.file}: sha256 of the model's bytes is ${found}, expected ${slice.sha256}`,
      );
    }
  }
  return bytes;
}

async function readAt(handle: FileHandle, slice: FileSlice): Promise<Buffer> {
  const offset = slice.offset ?? 0;
  const { size } = await handle.stat();
  const length = slice.bytes ?? size - offset;
  if (length < 0 || offset + length > size) {
    throw new ModelError('malformed-weights', `${slice.file}: has ${size} bytes, ${offset + length} are needed`);
  }
  const bytes = Buffer.alloc(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(bytes, done, Math.min(1 << 30, length - done), offset + done);
    if (bytesRead === 0) throw new ModelError('malformed-weights', `${slice.file}: ends early`);
    done += bytesRead;
  }
  return bytes;
}
