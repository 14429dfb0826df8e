import { existsSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { type ModelConfig, parseConfig } from './config.ts';
import { causeText, ModelError } from './errors.ts';
import { checkPlace, checkpointLayout, partOf, placesOf } from './places.ts';
import { checkUnchanged, readStoredTensors, type StoredTensor } from './safetensors.ts';
import { partsOf, readValues, type TensorInfo, tensorsOf } from './tensors.ts';
import { parseVision, type VisionConfig } from './vision/config.ts';
import { expectedVisionTensors, llavaTensors } from './vision/tensors.ts';

/** An opened model directory in Hugging Face layout. The names and shapes of its tensors have been checked; `tensors` reads weights on demand. */
export interface LoadedModel {
  /** Absolute path of the directory with config.json, the weights and the tokenizer. */
  readonly directory: string;
  readonly config: ModelConfig;
  /** Tensors of the text model (`expectedTensors` lists their names) and of the vision tower, if any (`expectedVisionTensors`). */
  readonly tensors: TensorStore;
  /** Set for models that take images. */
  readonly vision?: VisionConfig;
}

/** The tensors of a model, from one file or many. */
export interface TensorStore {
  has(name: string): boolean;
  /** @throws ModelError `missing-tensor` */
  info(name: string): TensorInfo;
  /**
   * Reads a tensor from disk, converted to 32-bit floats; a new array each time.
   * @throws ModelError `missing-tensor`; `malformed-weights` or `missing-file` when its file was changed or removed since the model was opened
   */
  read(name: string): Float32Array;
}

/**
 * Opens a model directory in Hugging Face layout: `config.json` with `model.safetensors`, or with the shards that
 * `model.safetensors.index.json` lists, or with the GGUF file that a pull put there. A model with a vision tower has a
 * `preprocessor_config.json` too.
 *
 * @throws ModelError naming the file, the field, the missing tensor or the tensor of a wrong shape.
 */
export async function loadModel(directory: string): Promise<LoadedModel> {
  const root = resolve(directory);
  const file = await readJson(join(root, 'config.json'));
  const config = parseConfig(file, await readOptionalJson(root, 'generation_config.json'));
  const vision = parseVision(file, await readOptionalJson(root, 'preprocessor_config.json'), config);
  const gguf = hasSafetensors(root) ? undefined : await openGgufModel(root, config);
  if (gguf) return gguf;
  const stored = await openTensors(root);
  if (!vision) {
    const tensors = checkpointTensors(config, stored);
    checkTensors(expectedTensors(config), tensors);
    return { directory: root, config, tensors };
  }
  const tensors = llavaTensors(stored);
  checkTensors([...expectedTensors(config), ...expectedVisionTensors(vision)], tensors);
  return { directory: root, config, tensors, vision };
}

/**
 * Opens a session or an engine that maps weights by path. All backends open these through this function: it checks that each file is a regular
 * one and the one whose header `loadModel` read, before `open` and once more after it, because a pull may replace the files meanwhile.
 *
 * @param expected the mapped tensors, as `expectedTensors`
 * @param close called with what `open` returned when a file was changed meanwhile
 * @throws ModelError `malformed-weights` or `missing-file`
 */
export async function openWeights<T>(
  tensors: TensorStore,
  expected: ReturnType<typeof expectedTensors>,
  open: () => T | Promise<T>,
  close: (opened: T) => void | Promise<void>,
): Promise<T> {
  const parts = expected.flatMap(([name]) => partsOf(tensors.info(name)));
  // One part for each file is enough.
  const files = [...new Map(parts.map((part) => [part.file, part])).values()];
  for (const file of files) checkUnchanged(file);
  const opened = await open();
  try {
    for (const file of files) checkUnchanged(file);
    return opened;
  } catch (error) {
    await close(opened);
    throw error;
  }
}

/** Prefixes that checkpoints of text and images put before the text model's names, and that of its layers. */
const PREFIXES = [
  ['', 'model.'],
  ['language_model.', 'language_model.model.'],
  ['', 'model.language_model.'],
] as const;

/** The tensors of a Hugging Face checkpoint, or of a file that a conversion wrote, under our names. */
function checkpointTensors(config: ModelConfig, stored: TensorStore): TensorStore {
  const places = placesOf(expectedTensors(config), config, checkpointLayout(config));
  const find = (name: string): string | undefined => {
    const inner = name.startsWith('model.') ? name.slice('model.'.length) : undefined;
    return PREFIXES.map(([outer, ofModel]) => (inner === undefined ? outer + name : ofModel + inner)).find((each) =>
      stored.has(each),
    );
  };
  const info = (name: string): TensorInfo => {
    const place = places.get(name);
    // Conversions write our names.
    if (place === undefined || stored.has(name)) return stored.info(name);
    const found = stored.info(find(place.name) ?? place.name);
    checkPlace(place, found.shape);
    return partOf(found, place);
  };
  return {
    has: (name) => stored.has(name) || find(places.get(name)?.name ?? name) !== undefined,
    info,
    read(name) {
      const values = readValues(info(name));
      const isShifted = config.normOffset !== 0 && name.endsWith('norm.weight');
      return isShifted ? values.map((value) => value + config.normOffset) : values;
    },
  };
}

/** Names and shapes of all tensors of a text model with this config, in the order in which the forward pass uses them. */
export function expectedTensors(config: ModelConfig): [name: string, shape: readonly number[]][] {
  const { hiddenSize: hidden, headDim, norms, experts } = config;
  const queries = config.heads * headDim;
  const keys = config.kvHeads * headDim;
  const expected: [string, readonly number[]][] = [['model.embed_tokens.weight', [config.vocabularySize, hidden]]];
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `model.layers.${layer}`;
    const attention = `${prefix}.self_attn`;
    if (norms !== 'after') expected.push([`${prefix}.input_layernorm.weight`, [hidden]]);
    for (const [projection, rows] of [
      ['q', queries],
      ['k', keys],
      ['v', keys],
    ] as const) {
      expected.push([`${attention}.${projection}_proj.weight`, [rows, hidden]]);
      if (config.attentionBias) expected.push([`${attention}.${projection}_proj.bias`, [rows]]);
    }
    if (config.queryKeyNorm) {
      const isRow = config.queryKeyNormSpan === 'row';
      expected.push([`${attention}.q_norm.weight`, [isRow ? queries : headDim]]);
      expected.push([`${attention}.k_norm.weight`, [isRow ? keys : headDim]]);
    }
    if (config.sinks) expected.push([`${attention}.sinks`, [config.heads]]);
    expected.push([`${attention}.o_proj.weight`, [hidden, queries]]);
    if (config.outputBias) expected.push([`${attention}.o_proj.bias`, [hidden]]);
    if (norms !== 'before') expected.push([`${attention}.output_norm.weight`, [hidden]]);
    if (norms === 'before') expected.push([`${prefix}.post_attention_layernorm.weight`, [hidden]]);
    // Families with norms on both sides use the name above for different ones.
    if (norms === 'around') expected.push([`${prefix}.mlp.input_norm.weight`, [hidden]]);
    if (experts === null) expected.push(...feedForward(`${prefix}.mlp`, hidden, config.intermediateSize, false));
    else {
      expected.push([`${prefix}.mlp.router.weight`, [experts.count, hidden]]);
      if (experts.biases) expected.push([`${prefix}.mlp.router.bias`, [experts.count]]);
      for (let expert = 0; expert < experts.count; expert++)
        expected.push(...feedForward(`${prefix}.mlp.experts.${expert}`, hidden, experts.size, experts.biases));
    }
    if (norms !== 'before') expected.push([`${prefix}.mlp.output_norm.weight`, [hidden]]);
  }
  expected.push(['model.norm.weight', [hidden]]);
  if (!config.tiedEmbeddings) expected.push(['lm_head.weight', [config.vocabularySize, hidden]]);
  return expected;
}

function feedForward(prefix: string, hidden: number, inner: number, biases: boolean): [string, readonly number[]][] {
  const linears = [
    ['gate_proj', inner, hidden],
    ['up_proj', inner, hidden],
    ['down_proj', hidden, inner],
  ] as const;
  return linears.flatMap(([name, rows, columns]): [string, readonly number[]][] => [
    [`${prefix}.${name}.weight`, [rows, columns]],
    ...(biases ? ([[`${prefix}.${name}.bias`, [rows]]] as [string, readonly number[]][]) : []),
  ]);
}

/** Checks that all expected tensors are there with their shapes; further ones are allowed. @throws ModelError `missing-tensor`, `wrong-shape` */
export function checkTensors(expected: ReturnType<typeof expectedTensors>, tensors: TensorStore): void {
  for (const [name, shape] of expected) {
    if (!tensors.has(name)) {
      throw new ModelError('missing-tensor', `the weights lack "${name}" of shape [${shape.join(', ')}]`, {
        hint:
          name === 'lm_head.weight'
            ? 'if the model ties its embeddings, config.json must say "tie_word_embeddings": true'
            : 'the weights and config.json do not belong together, or a shard is missing',
      });
    }
    const found = tensors.info(name).shape;
    if (found.length !== shape.length || found.some((dimension, i) => dimension !== shape[i])) {
      throw new ModelError(
        'wrong-shape',
        `"${name}" has shape [${found.join(', ')}], config.json implies [${shape.join(', ')}]`,
      );
    }
  }
}

const indexSchema = z.looseObject({ weight_map: z.record(z.string(), z.string()) });

/** Opens the weights of a model directory, one file or shards. */
export async function openTensors(directory: string): Promise<TensorStore> {
  return store(tensorsOf(await storedTensors(directory)));
}

/** True when the weights of a model directory are in safetensors files. */
function hasSafetensors(directory: string): boolean {
  return [SINGLE, INDEX].some((name) => existsSync(join(directory, name)));
}

const SINGLE = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';

/** The model of the GGUF file that a pull put into a directory; undefined when there is none. */
async function openGgufModel(directory: string, config: ModelConfig): Promise<LoadedModel | undefined> {
  const { ggufFileOf, openGguf } = await import('./convert/gguf/convert.ts');
  const file = ggufFileOf(directory);
  if (file === undefined) return undefined;
  const opened = openGguf(file, config);
  return { directory, config: opened.config, tensors: store(opened.tensors) };
}

/** All tensors of a model directory by their names in its files, each with its location in the single file or in a shard. */
export async function storedTensors(directory: string): Promise<Map<string, StoredTensor>> {
  const single = join(directory, SINGLE);
  if (existsSync(single)) return readStoredTensors(single);
  const indexFile = join(directory, INDEX);
  if (!existsSync(indexFile)) {
    throw new ModelError('missing-file', `${directory} has neither ${SINGLE} nor ${INDEX}`, {
      hint: 'Pie reads safetensors weights in Hugging Face layout, and GGUF files that a pull brought in',
    });
  }
  const parsed = indexSchema.safeParse(await readJson(indexFile));
  if (!parsed.success)
    throw new ModelError('malformed-weights', `${indexFile}: it has no weight_map of names to files`);
  const shards = new Map<string, Map<string, StoredTensor>>();
  const tensors = new Map<string, StoredTensor>();
  for (const [name, shard] of Object.entries(parsed.data.weight_map)) {
    // The index is untrusted input: it must not name files of other directories.
    if (!isShardName(shard))
      throw new ModelError('malformed-weights', `${indexFile}: "${shard}" is not a shard's name`);
    let header = shards.get(shard);
    if (header === undefined) {
      const file = join(directory, shard);
      if (!existsSync(file))
        throw new ModelError('missing-file', `${file} is missing`, { hint: 'pull the model again' });
      header = readStoredTensors(file);
      shards.set(shard, header);
    }
    const info = header.get(name);
    // `checkTensors` reports a tensor that its shard lacks.
    if (info !== undefined) tensors.set(name, info);
  }
  return tensors;
}

/** True when a shard's name is a plain safetensors file name, without a directory. */
export function isShardName(name: string): boolean {
  return /^[\w.-]+\.safetensors$/.test(name) && !name.startsWith('.');
}

function store(tensors: ReadonlyMap<string, TensorInfo>): TensorStore {
  const info = (name: string): TensorInfo => {
    const found = tensors.get(name);
    if (found === undefined) throw new ModelError('missing-tensor', `the weights lack "${name}"`);
    return found;
  };
  return { has: (name) => tensors.has(name), info, read: (name) => readValues(info(name)) };
}

/** Maximum bytes of a JSON or text file, so that a wrong file does not fill the memory. Real tokenizers and indexes reach some 30 MB. */
const MAX_TEXT_BYTES = 128 << 20;

/** Reads a JSON file of a model directory. @throws ModelError `missing-file` or `malformed-config` */
export async function readJson(file: string): Promise<unknown> {
  const text = await readText(file);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ModelError('malformed-config', `${file} is not JSON: ${causeText(cause)}`, { cause });
  }
}

/** Like {@link readJson}, but undefined when the file does not exist. */
export async function readOptionalJson(directory: string, name: string): Promise<unknown> {
  const file = join(directory, name);
  return existsSync(file) ? readJson(file) : undefined;
}

/** A text file of a model directory; null when it does not exist. @throws ModelError `missing-file` or `malformed-config` */
export async function readOptionalText(directory: string, name: string): Promise<string | null> {
  const file = join(directory, name);
  return existsSync(file) ? readText(file) : null;
}

async function readText(file: string): Promise<string> {
  const unreadable = (cause: unknown): never => {
    throw new ModelError('missing-file', `${file} cannot be read: ${causeText(cause)}`, { cause });
  };
  const { size } = await stat(file).catch(unreadable);
  if (size > MAX_TEXT_BYTES)
    throw new ModelError('malformed-config', `${file} has ${size} bytes; the limit is ${MAX_TEXT_BYTES}`);
  return await readFile(file, 'utf8').catch(unreadable);
}
