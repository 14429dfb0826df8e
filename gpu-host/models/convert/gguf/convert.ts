import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ModelConfig, parseConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import type { GgufForm } from '../../families/family.ts';
import { ggufForm } from '../../families/index.ts';
import { expectedTensors } from '../../load.ts';
import { placeFile } from '../../place-file.ts';
import { checkPlace, type Layout, partOf, placesOf } from '../../places.ts';
import { readBytes } from '../../safetensors.ts';
import type { TensorInfo } from '../../tensors.ts';
import { loadTokenizer } from '../../tokenizer.ts';
import { DIVISORS, ggufConfig } from './config.ts';
import type { GgufTensor } from './header.ts';
import { partName, readGguf } from './split.ts';
import { ggufTokenizer, specialIds } from './tokenizer.ts';

/** Maximum bytes of the list of the rotation's divisors; a head has at most a few thousand pairs. */
const MAX_DIVISOR_BYTES = 4 << 20;

/** Our modules of a layer → those of GGUF, in all architectures that do not say otherwise. */
const MODULES: Readonly<Record<string, string>> = {
  input_layernorm: 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'self_attn.sinks': 'attn_sinks.weight',
  'self_attn.o_proj': 'attn_output',
  'self_attn.output_norm': 'post_attention_norm',
  post_attention_layernorm: 'ffn_norm',
  'mlp.input_norm': 'ffn_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.router': 'ffn_gate_inp',
  'mlp.output_norm': 'post_ffw_norm',
};
const STACKS: Readonly<Record<string, string>> = {
  gate_proj: 'ffn_gate_exps',
  up_proj: 'ffn_up_exps',
  down_proj: 'ffn_down_exps',
};
const OUTSIDE_LAYERS: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

/** The names of a form's files. */
export function ggufLayout({ names }: GgufForm): Layout {
  return {
    layer: (index) => `blk.${index}.`,
    ...{ outside: OUTSIDE_LAYERS, stacks: STACKS, fused: names?.fused ?? {} },
    modules: { ...MODULES, ...names?.modules },
  };
}
/** Name of the weights in a model's directory, without the suffix and the number of a part. */
const NAME = 'model';

/**
 * Brings a GGUF model into a model's directory: its configuration and its tokenizer as Hugging Face's files, and the file itself, or its parts, with
 * the weights in their own bits ({@link placeFile} says how).
 *
 * @param file the file, or the first of the parts
 * @param onProgress called for each part that is in its place
 * @throws ModelError `malformed-weights`, `malformed-config`, `malformed-tokenizer`, `missing-tensor`, `wrong-shape`, `missing-file`,
 * `invalid-source` or `unsupported-model`
 */
export async function importGguf(
  file: string,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const { metadata, tensors, files } = readGguf(file);
  const divisors = (name: string) => {
    const tensor = tensors.get(name);
    return tensor ? readDivisors(name, tensor) : null;
  };
  const { form, json: configJson } = ggufConfig({ metadata, tensors }, divisors, specialIds(metadata));
  const config = parseConfig(configJson);
  const places = placesOf(expectedTensors(config), config, ggufLayout(form));
  ggufTensors(config, form, tensors);
  const used = new Set([...DIVISORS, ...[...places.values()].map(({ name }) => name)]);
  const unused = [...tensors.keys()].find((name) => !used.has(name));
  if (unused !== undefined)
    throw new ModelError('unsupported-model', `the GGUF file has a tensor "${unused}", which Pie does not compute`);
  const { tokenizer, settings } = ggufTokenizer(metadata, config);
  const json = (name: string, value: unknown) =>
    writeFile(join(directory, name), `${JSON.stringify(value, null, 1)}\n`);
  await json('config.json', configJson);
  // No indentation here: it would double the text of a million merges.
  await writeFile(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  await json('tokenizer_config.json', settings);
  // A tokenizer that cannot be used is refused before gigabytes of weights are copied.
  await loadTokenizer(directory);
  for (const [index, source] of files.entries()) {
    const name = files.length === 1 ? `${NAME}.gguf` : partName(NAME, index + 1, files.length);
    await placeFile(source, join(directory, name));
    onProgress(index + 1, files.length);
  }
}

/** The GGUF file of a model's directory, or the first of its parts; undefined when its weights have another format. */
export function ggufFileOf(directory: string): string | undefined {
  const name = readdirSync(directory).find((each) => each === `${NAME}.gguf` || FIRST_PART.test(each));
  return name === undefined ? undefined : join(directory, name);
}

const FIRST_PART = new RegExp(String.raw`^${NAME}-00001-of-\d{5}\.gguf$`);

/** An opened GGUF model: its tensors by our names, and the configuration as the file's values have it. */
export interface OpenedGguf {
  readonly config: ModelConfig;
  readonly tensors: Map<string, TensorInfo>;
}

/** Opens the weights of a GGUF file, or of the parts of which it is the first. @throws ModelError */
export function openGguf(file: string, config: ModelConfig): OpenedGguf {
  const { metadata, tensors } = readGguf(file, { lists: false });
  const form = ggufForm(metadata.get('general.architecture'));
  if (form?.type !== config.family)
    throw new ModelError('malformed-config', `${file} is no model of the type "${config.family}" of its config.json`);
  return {
    config: form.addsOneToNorms ? { ...config, normOffset: 0 } : config,
    tensors: ggufTensors(config, form, tensors),
  };
}

/** The tensors of a text model by our names, where they lie in GGUF files. @throws ModelError `missing-tensor` or `wrong-shape` */
function ggufTensors(
  config: ModelConfig,
  form: GgufForm,
  tensors: ReadonlyMap<string, GgufTensor>,
): Map<string, TensorInfo> {
  const places = placesOf(expectedTensors(config), config, ggufLayout(form));
  return new Map(
    Array.from(places, ([name, place]) => {
      const tensor = tensors.get(place.name);
      if (tensor === undefined)
        throw new ModelError('missing-tensor', `the GGUF file lacks the tensor "${place.name}"`);
      checkPlace(place, tensor.shape);
      const isPermuted = form.permuted === true && /\.(q|k)_proj\.(weight|bias)$/.test(name);
      return [name, partOf(infoOf(tensor, isPermuted ? config.headDim : 0), place)];
    }),
  );
}

function infoOf({ type, ...place }: GgufTensor, rowsOfHead: number): TensorInfo {
  return type.plain === undefined || rowsOfHead > 0
    ? { dtype: 'packed', type, rowsOfHead, ...place }
    : { dtype: type.plain, ...place };
}

function readDivisors(name: string, tensor: GgufTensor): Float32Array {
  if (tensor.type.plain !== 'F32' || tensor.shape.length !== 1 || tensor.bytes > MAX_DIVISOR_BYTES)
    throw new ModelError('malformed-weights', `"${name}" is not a short list of 32-bit floats`);
  return new Float32Array(readBytes(tensor).buffer);
}
