import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type BlockedTensor, isBlocked } from './config.ts';
import { causeText, ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import { makeFile } from './make-file.ts';
import { readSafetensorsHeader, writeSafetensors } from './safetensors.ts';

const FILE = 'widened.safetensors';

/**
 * The same model with every matrix as plain floats, for backends that read nothing else. The first call writes the values of the blocks as 32-bit
 * floats to a file in the model's directory.
 *
 * @throws ModelError `missing-file` when the file cannot be written
 */
export async function widenBlocks(model: LoadedModel): Promise<LoadedModel> {
  const { directory, tensors } = model;
  const blocked = expectedTensors(model.config)
    .map(([name]) => [name, tensors.info(name)] as const)
    .filter((entry): entry is [string, BlockedTensor] => isBlocked(entry[1]));
  if (blocked.length === 0) return model;
  const file = join(directory, FILE);
  const sources = blocked.map(([name, { shape }]) => ({ name, shape, data: () => tensors.read(name) }));
  try {
    await makeFile(
      file,
      async () => existsSync(file),
      (partial) => writeSafetensors(partial, sources),
    );
  } catch (cause) {
    throw new ModelError('missing-file', `the weights of ${directory} cannot be widened: ${causeText(cause)}`, {
      cause,
      hint: 'its 8- and 4-bit blocks need a second file of 32-bit floats there: 4 bytes for each weight',
    });
  }
  const wide = readSafetensorsHeader(file);
  return {
    ...model,
    // `read` stays: it computes the same floats from the blocks.
    tensors: { ...tensors, info: (name) => wide.get(name) ?? tensors.info(name) },
  };
}
