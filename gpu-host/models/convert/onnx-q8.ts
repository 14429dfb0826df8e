import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type onnxProto from 'onnx-proto';
import { parseConfig } from '../config.ts';
import { SENTENCE_FILES } from '../encoder/config.ts';
import { causeText, ModelError } from '../errors.ts';
import { expectedTensors, readJson } from '../load.ts';
import { type TensorSource, writeSafetensors } from '../safetensors.ts';
import { transposed } from './matrices.ts';

type Onnx = (typeof onnxProto)['onnx'];
type Initializer = InstanceType<Onnx['TensorProto']>;
type Graph = NonNullable<InstanceType<Onnx['ModelProto']>['graph']>;

/** `TensorProto.DataType`. */
const FLOAT = 1;
const UINT8 = 2;
const INT8 = 3;
/** Protobuf's own size limit; the converter reads the file whole. */
const MAX_GRAPH_BYTES = 2 ** 31 - 1;

/** Files beside the graph that belong to the model. */
const SIDE_FILES = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'chat_template.jinja',
  'chat_template.json',
  'preprocessor_config.json',
  ...SENTENCE_FILES,
] as const;

/**
 * Converts a Llama-family ONNX export with 8-bit weights to Hugging Face layout in `directory`; dequantises the weights to 32-bit floats.
 * `optimum` and transformers.js publish such exports as `onnx/model_quantized.onnx`, beside config.json and tokenizer.json.
 *
 * Initializers of embeddings and norms have the names of the weights. The initializer of a projection is the input of a MatMul node, whose name
 * contains the module (`/model/layers.0/self_attn/q_proj/MatMul_quant`).
 *
 * @throws ModelError `malformed-weights`, `missing-tensor` or `wrong-shape`
 */
export async function convertOnnxQ8(
  source: string,
  graphFile: string,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const config = parseConfig(await readJson(join(source, 'config.json')));
  const graph = await readGraph(join(source, graphFile));
  const weights = new WeightFinder(graph);
  const tensors = expectedTensors(config).map(
    ([name, shape]): TensorSource => ({ name, shape, data: () => weights.read(name, shape) }),
  );
  await writeSafetensors(join(directory, 'model.safetensors'), tensors, onProgress);
  await copySideFiles(source, directory);
}

/** Copies those of a model's configuration and tokenizer files that exist. */
export async function copySideFiles(source: string, directory: string): Promise<void> {
  for (const name of SIDE_FILES) {
    if (!existsSync(join(source, name))) continue;
    await mkdir(dirname(join(directory, name)), { recursive: true });
    await copyFile(join(source, name), join(directory, name));
  }
}

async function readGraph(file: string): Promise<Graph> {
  const { onnx } = (await import('onnx-proto')).default;
  let graph: Graph | null | undefined;
  try {
    const bytes = await readFile(file);
    if (bytes.length > MAX_GRAPH_BYTES) throw new Error('larger than 2 GiB');
    graph = onnx.ModelProto.decode(bytes).graph as Graph | null | undefined;
  } catch (cause) {
    throw new ModelError('malformed-weights', `${file} is not an ONNX model: ${causeText(cause)}`, { cause });
  }
  if (!graph) throw new ModelError('malformed-weights', `${file} holds no graph`);
  return graph;
}

class WeightFinder {
  readonly #initializers = new Map<string, Initializer>();
  /** Module path (`model.layers.0.self_attn.q_proj`) → the initializer that its product reads. */
  readonly #products = new Map<string, string>();

  constructor(graph: Graph) {
    for (const initializer of graph.initializer ?? []) {
      this.#initializers.set(initializer.name ?? '', initializer as Initializer);
    }
    for (const node of graph.node ?? []) {
      const path = /^\/(.+)\/MatMul(?:_quant)?$/.exec(node.name ?? '')?.[1];
      const weight = node.input?.[1];
      if (path !== undefined && weight !== undefined && this.#initializers.has(weight)) {
        this.#products.set(path.replaceAll('/', '.'), weight);
      }
    }
  }

  /** The values of a Hugging Face tensor of this shape. */
  read(name: string, shape: readonly number[]): Float32Array {
    // Embeddings and norms keep their names and the layer's own shape.
    const direct = this.#values(name) ?? this.#values(`${name}_quantized`);
    if (direct !== undefined) {
      expectShape(name, direct.shape, shape);
      return direct.values;
    }
    const product = this.#values(this.#products.get(name.replace(/\.weight$/, '')) ?? '');
    if (product === undefined) throw new ModelError('missing-tensor', `the ONNX graph has no weight for "${name}"`);
    // The export stores W of x · W as [in, out]; Hugging Face keeps [out, in].
    expectShape(name, product.shape, [...shape].reverse());
    return transposed(product.values, product.shape[0] ?? 1, product.shape[1] ?? 1);
  }

  #values(name: string): { values: Float32Array; shape: number[] } | undefined {
    const initializer = this.#initializers.get(name);
    if (initializer === undefined) return undefined;
    const shape = (initializer.dims ?? []).map(Number);
    const count = shape.reduce((product, dimension) => product * dimension, 1);
    const values = Float32Array.from(elements(initializer, name));
    if (values.length !== count) {
      throw new ModelError(
        'malformed-weights',
        `"${name}" has ${values.length} values for shape [${shape.join(', ')}]`,
      );
    }
    if (name.endsWith('_quantized')) this.#dequantise(name, values, shape);
    return { values, shape };
  }

  /** Computes (value − zero point) × scale in place, with one scale for the tensor or one for each index of the last dimension. */
  #dequantise(name: string, values: Float32Array, shape: readonly number[]): void {
    const base = name.slice(0, -'_quantized'.length);
    const scale = this.#initializers.get(`${base}_scale`);
    if (scale === undefined) throw new ModelError('missing-tensor', `the ONNX graph has no scale for "${name}"`);
    const zeroPoint = this.#initializers.get(`${base}_zero_point`);
    const scales = Array.from(elements(scale, `${base}_scale`));
    const zeros = zeroPoint === undefined ? [0] : Array.from(elements(zeroPoint, `${base}_zero_point`));
    const columns = shape.at(-1) ?? 1;
    for (const parameters of [scales, zeros]) {
      if (parameters.length !== 1 && parameters.length !== columns) {
        throw new ModelError(
          'malformed-weights',
          `"${name}" has ${parameters.length} quantisation parameters for ${columns} columns`,
        );
      }
    }
    for (let i = 0; i < values.length; i++) {
      const column = i % columns;
      const zero = zeros[zeros.length === 1 ? 0 : column] ?? 0;
      values[i] = ((values[i] ?? 0) - zero) * (scales[scales.length === 1 ? 0 : column] ?? 1);
    }
  }
}

/** The elements of an initializer, from its raw bytes or from the field of its type. */
function elements(tensor: Initializer, name: string): ArrayLike<number> & Iterable<number> {
  const raw = tensor.rawData ?? new Uint8Array(0);
  switch (tensor.dataType) {
    case FLOAT:
      if (raw.length % 4 !== 0)
        throw new ModelError('malformed-weights', `"${name}" has ${raw.length} bytes of floats`);
      // Copy the bytes, because protobuf need not align them.
      return raw.length > 0 ? new Float32Array(new Uint8Array(raw).buffer) : (tensor.floatData ?? []);
    case UINT8:
      return raw.length > 0 ? raw : (tensor.int32Data ?? []);
    case INT8:
      return raw.length > 0 ? new Int8Array(raw.buffer, raw.byteOffset, raw.length) : (tensor.int32Data ?? []);
    default:
      throw new ModelError(
        'malformed-weights',
        `"${name}" has ONNX type ${tensor.dataType}; float, int8 and uint8 are known`,
      );
  }
}

function expectShape(name: string, found: readonly number[], expected: readonly number[]): void {
  if (found.length !== expected.length || found.some((dimension, i) => dimension !== expected[i])) {
    throw new ModelError(
      'wrong-shape',
      `"${name}" has shape [${found.join(', ')}] in the graph, config.json implies [${expected.join(', ')}]`,
    );
  }
}
