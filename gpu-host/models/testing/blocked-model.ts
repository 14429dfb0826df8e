import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { convertGguf } from '../convert/gguf/convert.ts';
import { type Encoding, ggufFile, modelParts } from '../convert/gguf/testing/write.ts';
import { type LoadedModel, loadModel } from '../load.ts';

/** Writes the model as a GGUF file into a new folder of `directory`, converts that file, and loads the result, whose matrices are in blocks. */
export async function blockedModel(
  model: LoadedModel,
  encoding: Encoding | ((tensor: string) => Encoding),
  directory: string,
): Promise<LoadedModel> {
  const folder = await mkdtemp(join(directory, 'blocked-'));
  const file = join(folder, 'model.gguf');
  await writeFile(file, ggufFile(modelParts(model, encoding)));
  await convertGguf(file, folder);
  return loadModel(folder);
}
