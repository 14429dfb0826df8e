import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type BlockedTensor, isBlocked } from './blocks.ts';
import { causeText, ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import { withLock } from './lock.ts';
import { readSafetensorsHeader, writeSafetensors } from './safetensors.ts';

const FILE = 'widened.safetensors';
const PARTIAL = '.partial';

/**
 * The same model with every matrix as plain floats, for backends that read nothing else. The values of blocks lie as 32-bit floats in a file
 * of the model's directory, which the first call writes.
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
  if (!existsSync(file)) {
    try {
      await withLock(`${file}.lock`, {}, async () => {
        if (!existsSync(file)) await write(directory, file, blocked, tensors);
      });
    } catch (cause) {
      throw new ModelError('missing-file', `the weights of ${directory} cannot be widened: ${causeText(cause)}`, {
        cause,
        hint: 'its 8- and 4-bit blocks need a second file of 32-bit floats there: 4 bytes for each weight',
      });
    }
  }
  const wide = readSafetensorsHeader(file);
  return {
    ...model,
    tensors: { ...tensors, info: (name) => wide.get(name) ?? tensors.info(name) },
  };
}

async function write(
  directory: string,
  file: string,
  blocked: readonly (readonly [string, BlockedTensor])[],
  tensors: LoadedModel['tensors'],
): Promise<void> {
  // Remove the partial files of killed GPU hosts; the caller holds the lock, so no running one writes them.
  for (const name of await readdir(directory))
    if (name.startsWith(`${FILE}.`) && name.endsWith(PARTIAL)) await rm(join(directory, name), { force: true });
  const partial = `${file}.${randomUUID()}${PARTIAL}`;
  try {
    const sources = blocked.map(([name, { shape }]) => ({ name, shape, data: () => tensors.read(name) }));
    await writeSafetensors(partial, sources);
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
}
