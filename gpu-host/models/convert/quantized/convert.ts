import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ModelConfig, parseConfig } from '../../config.ts';
import { ModelError } from '../../errors.ts';
import { expectedTensors, readJson, readOptionalJson, storedTensors } from '../../load.ts';
import { isFloat, readPieces, type TensorSource, writeSafetensors } from '../../safetensors.ts';
import { loadTokenizer } from '../../tokenizer.ts';
import { copySideFiles } from '../onnx-q8.ts';
import { awqMatrix } from './awq.ts';
import { groupedSources } from './blocks.ts';
import { parseQuantization, type Quantization } from './config.ts';
import { float8Source } from './float8.ts';
import { gptqMatrix } from './gptq.ts';
import { packedMatrix } from './packed.ts';
import { expectStored, MISMATCH, Stored } from './stored.ts';

const PIECE_BYTES = 4 << 20;

/**
 * Converts a quantised checkpoint to a model in Hugging Face layout without a `quantization_config`, in `directory`. The checkpoint is in Hugging
 * Face layout, too; its `config.json` has a `quantization_config`.
 *
 * A matrix of integer levels (`GroupedMatrix`) becomes Pie's blocks where blocks can hold exactly the same values, else 32-bit floats. A matrix of
 * 8-bit floats becomes 32-bit floats. Tensors that are not quantised keep their type. Each matrix is converted some rows at a time.
 *
 * @throws ModelError `unsupported-model`, `malformed-config`, `malformed-weights`, `malformed-tokenizer`, `missing-tensor` or `wrong-shape`
 */
export async function convertQuantized(
  source: string,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const json = await readJson(join(source, 'config.json'));
  const quantization = parseQuantization(json);
  const { quantization_config: _, ...plain } = json as Record<string, unknown>;
  const config = parseConfig(plain, await readOptionalJson(source, 'generation_config.json'));
  const sources = sourcesOf(config, quantization, new Stored(await storedTensors(source)));
  await copySideFiles(source, directory);
  await writeFile(join(directory, 'config.json'), `${JSON.stringify(plain, null, 2)}\n`);
  // A tokenizer that cannot be used is refused before gigabytes of weights are written.
  await loadTokenizer(directory);
  await writeSafetensors(join(directory, 'model.safetensors'), sources, onProgress);
}

function sourcesOf(config: ModelConfig, quantization: Quantization, stored: Stored): TensorSource[] {
  const sources = expectedTensors(config).flatMap(([name, shape]): TensorSource[] => {
    const quantized = shape.length === 2 ? quantizedSources(quantization, stored, name, shape) : null;
    if (quantized === null) return [plainSource(stored, name, shape)];
    if (quantization.ignored.has(name.replace(/\.weight$/, '')))
      throw new ModelError('malformed-weights', `"${name}" is quantised, though "quantization_config" excepts it`, {
        hint: MISMATCH,
      });
    return quantized;
  });
  const unusedTensor = stored
    .unused()
    .find(([name, { dtype }]) => dtype === 'F8_E4M3' || (dtype === 'I32' && /\.(qweight|weight_packed)$/.test(name)));
  if (unusedTensor !== undefined)
    throw new ModelError(
      'unsupported-model',
      `the checkpoint has a quantised "${unusedTensor[0]}", which Pie does not compute`,
    );
  return sources;
}

/** The tensors that a quantised matrix becomes; null when the checkpoint has the matrix as plain floats. */
function quantizedSources(
  quantization: Quantization,
  stored: Stored,
  name: string,
  shape: readonly number[],
): TensorSource[] | null {
  const read = () => {
    switch (quantization.kind) {
      case 'awq':
        return awqMatrix(quantization, stored, name, shape);
      case 'gptq':
        return gptqMatrix(quantization, stored, name, shape);
      case 'packed':
        return packedMatrix(quantization, stored, name, shape);
      case 'float8':
        return float8Source(quantization, stored, name, shape);
    }
  };
  const matrix = read();
  if (matrix === null) return null;
  // 8-bit floats are one converted tensor already.
  return 'data' in matrix ? [matrix] : groupedSources(name, matrix);
}

function plainSource(stored: Stored, name: string, shape: readonly number[]): TensorSource {
  const tensor = stored.require(name);
  expectStored(name, tensor, 'floats', shape);
  // `expectStored` has checked this; the condition narrows the type.
  if (!isFloat(tensor)) throw new TypeError(`"${name}" has no floats.`);
  return { name, shape, dtype: tensor.dtype, data: () => readPieces(tensor, PIECE_BYTES) };
}
