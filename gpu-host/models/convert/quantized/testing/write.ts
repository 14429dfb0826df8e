import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expectedTensors, type LoadedModel } from '../../../load.ts';

/** A tensor of a file; `dtype` is safetensors' name of the type. */
export interface Raw {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** A quantised matrix. */
export interface QuantizedMatrix {
  /** The tensors that a checkpoint stores, by the part of their name that takes the place of `weight`. */
  readonly parts: Readonly<Record<string, Raw>>;
  /** The values that the tensors stand for, in float64. */
  readonly values: Float64Array;
}

/** A tensor's values in float64. */
export interface Exact {
  readonly shape: readonly number[];
  readonly values: Float64Array;
}

/** A way to quantise checkpoints. */
export interface Scheme {
  /** The `quantization_config` of a model that keeps some modules plain. */
  quantization(plain: readonly string[]): Readonly<Record<string, unknown>>;
  quantize(values: Float32Array, rows: number, columns: number): QuantizedMatrix;
}

/** The parts of a checkpoint. Tests change them before they write them. */
export interface Checkpoint {
  readonly config: Record<string, unknown>;
  readonly tensors: Map<string, Raw>;
  readonly exact: ReadonlyMap<string, Exact>;
}

/**
 * A model with its layers' matrices quantised, and with the head quantised or plain. Norms, biases, embeddings and a plain head are bfloat16.
 */
export function quantizedCheckpoint(
  { config, tensors }: LoadedModel,
  json: object,
  scheme: Scheme,
  head: 'plain' | 'quantised' = 'plain',
): Checkpoint {
  const isPlain = (name: string) => name.includes('embed') || (head === 'plain' && name.includes('lm_head'));
  const raw = new Map<string, Raw>();
  const exact = new Map<string, Exact>();
  for (const [name, shape] of expectedTensors(config)) {
    const [rows = 0, columns = 0] = shape;
    if (shape.length === 2 && !isPlain(name)) {
      const quantized = scheme.quantize(tensors.read(name), rows, columns);
      for (const [end, part] of Object.entries(quantized.parts)) raw.set(name.replace(/weight$/, end), part);
      exact.set(name, { shape, values: quantized.values });
    } else {
      const stored = floats(tensors.read(name), 'BF16', shape);
      raw.set(name, stored.raw);
      exact.set(name, { shape, values: stored.values });
    }
  }
  const quantization_config = scheme.quantization(head === 'plain' ? ['lm_head'] : []);
  return { config: { ...json, quantization_config }, tensors: raw, exact };
}

/** Writes a checkpoint with the tokenizer of another directory, in one file or in shards of one tensor each. */
export async function writeCheckpoint(
  directory: string,
  { config, tensors }: Pick<Checkpoint, 'config' | 'tensors'>,
  tokenizerOf: string,
  layout: 'one file' | 'shards' = 'one file',
): Promise<void> {
  await mkdir(directory, { recursive: true });
  for (const name of ['tokenizer.json', 'tokenizer_config.json'])
    await copyFile(join(tokenizerOf, name), join(directory, name));
  await writeFile(join(directory, 'config.json'), JSON.stringify(config));
  if (layout === 'one file') {
    await writeFile(join(directory, 'model.safetensors'), safetensors(tensors));
    return;
  }
  const shards = [...tensors].map(([name, raw], i) => ({ name, raw, file: `model-${i}.safetensors` }));
  for (const { name, raw, file } of shards) await writeFile(join(directory, file), safetensors(new Map([[name, raw]])));
  const weight_map = Object.fromEntries(shards.map(({ name, file }) => [name, file]));
  await writeFile(join(directory, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
}

/** The same checkpoint in 32-bit floats, each value rounded once. */
export function floatCheckpoint({ config, exact }: Checkpoint): Pick<Checkpoint, 'config' | 'tensors'> {
  const { quantization_config: _, ...plain } = config;
  const tensors = [...exact].map(
    ([name, { shape, values }]) => [name, { dtype: 'F32', shape, bytes: bytesOf(Float32Array.from(values)) }] as const,
  );
  return { config: plain, tensors: new Map(tensors) };
}

/** The bytes of a file, without checks. */
export function safetensors(tensors: ReadonlyMap<string, Raw>): Buffer {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const [name, { dtype, shape, bytes }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...[...tensors.values()].map(({ bytes }) => bytes)]);
}

/** Encodes values in a float type. `values` of the result are the values that the encoding stands for. */
export function floats(
  input: ArrayLike<number>,
  dtype: 'F32' | 'F16' | 'BF16',
  shape: readonly number[],
): { raw: Raw; values: Float64Array } {
  const out = Buffer.alloc(input.length * (dtype === 'F32' ? 4 : 2));
  const values = new Float64Array(input.length);
  for (let i = 0; i < input.length; i++) {
    const value = input[i] as number;
    if (dtype === 'F32') {
      out.writeFloatLE(value, 4 * i);
      values[i] = out.readFloatLE(4 * i);
    } else if (dtype === 'F16') {
      const half = Float16Array.of(value);
      out.writeUInt16LE(new Uint16Array(half.buffer)[0] as number, 2 * i);
      values[i] = half[0] as number;
    } else {
      // Takes the upper half of a 32-bit float, without rounding.
      const word = Buffer.alloc(4);
      word.writeFloatLE(value);
      word.copy(out, 2 * i, 2);
      word.writeUInt16LE(0);
      values[i] = word.readFloatLE();
    }
  }
  return { raw: { dtype, shape, bytes: out }, values };
}

export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
}
