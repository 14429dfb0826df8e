import { join } from 'node:path';
import { parseConfig } from '../config.ts';
import { readJson, readOptionalJson } from '../load.ts';
import { parseVision, type VisionConfig } from './config.ts';

/**
 * Reads the vision part of a model directory; undefined when its model takes no images. Reads no weights.
 *
 * @throws ModelError when the directory cannot be read, or holds an unsupported model
 */
export async function readVision(directory: string): Promise<VisionConfig | undefined> {
  const file = await readJson(join(directory, 'config.json'));
  return parseVision(file, await readOptionalJson(directory, 'preprocessor_config.json'), parseConfig(file));
}
