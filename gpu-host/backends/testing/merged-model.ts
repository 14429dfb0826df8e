import { copyFile, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expectedTensors, type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { type FloatTensor, readSafetensorsHeader, readTensor, writeSafetensors } from '#gpu-host/models/safetensors.ts';

/**
 * Writes a copy of a model whose weights include the changes of an adapter, `W + scale · B · A`. The copy has the outputs of the model with the
 * adapter. This function reads the adapter's files itself, so that it is an oracle for the production reader.
 */
export async function mergedModel(model: LoadedModel, adapter: string, directory: string): Promise<LoadedModel> {
  const { r, lora_alpha, use_rslora } = JSON.parse(await readFile(join(adapter, 'adapter_config.json'), 'utf8'));
  const scale = lora_alpha / (use_rslora ? r ** 0.5 : r);
  const changes = readSafetensorsHeader(join(adapter, 'adapter_model.safetensors'));
  const tensors = expectedTensors(model.config).map(([name, shape]) => ({
    name,
    shape,
    data: () => {
      const weight = model.tensors.read(name);
      const module = `base_model.model.${name.replace(/\.weight$/, '')}`;
      const a = changes.get(`${module}.lora_A.weight`);
      const b = changes.get(`${module}.lora_B.weight`);
      return a && b ? merged(weight, shape[1] ?? 0, a, b, scale) : weight;
    },
  }));
  await mkdir(directory, { recursive: true });
  await copyFile(join(model.directory, 'config.json'), join(directory, 'config.json'));
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
  return loadModel(directory);
}

function merged(weight: Float32Array, columns: number, a: FloatTensor, b: FloatTensor, scale: number): Float32Array {
  const [down, up] = [readTensor(a), readTensor(b)];
  const rank = up.length / (weight.length / columns);
  return weight.map((value, index) => {
    const [row, column] = [Math.floor(index / columns), index % columns];
    let change = 0;
    for (let k = 0; k < rank; k++) change += up[row * rank + k] * down[k * columns + column];
    return value + scale * change;
  });
}
