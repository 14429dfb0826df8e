import { join } from 'node:path';
import { parseConfig } from '../config.ts';
import { readJson, readOptionalJson } from '../load.ts';
import { parseVision, type VisionConfig } from './config.ts';

/**
 * What a model directory says of the pictures that its model takes; undefined when it takes none. Reads no weights.
 *
 * @throws ModelError when the directory cannot be read, or holds what is not supported
 */
export async function readVision(directory: string): Promise<VisionConfig | undefined> {
  const file = await readJson(join(directory, 'config.json'));
  return parseVision(file, await readOptionalJson(directory, 'preprocessor_config.json'), parseConfig(file));
}
