import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { importGguf } from '../convert/gguf/convert.ts';
import { type Encoding, ggufFile, modelParts } from '../convert/gguf/testing/write.ts';
import { type LoadedModel, loadModel } from '../load.ts';
import { convertPacked } from '../widen.ts';

/** The model's weights in the blocks of a GGUF file, as a pull of such a file brings them in. The model is in a new folder of `directory`. */
export async function packedModel(
  model: LoadedModel,
  encoding: Encoding | ((tensor: string) => Encoding),
  directory: string,
): Promise<LoadedModel> {
  const folder = await mkdtemp(join(directory, 'packed-'));
  const file = join(folder, 'written.gguf');
  await writeFile(file, ggufFile(modelParts(model, encoding)));
  await importGguf(file, folder);
  return loadModel(folder);
}

/** Like {@link packedModel}, with the matrices converted to Pie's own blocks. */
export async function blockedModel(
  model: LoadedModel,
  encoding: Encoding | ((tensor: string) => Encoding),
  directory: string,
): Promise<LoadedModel> {
  return convertPacked(await packedModel(model, encoding, directory));
}
