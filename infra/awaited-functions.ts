import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from './config.ts';

/**
 * Writes a note for the gateway: the functions that this start of the platform deploys before it serves. Returns a callback that removes the
 * note. Call it when the functions are deployed: a gateway that restarts later must not wait for a function that an operator has removed.
 */
export function noteAwaited(config: Pick<Config, 'runDirectory'>, names: readonly string[]): () => void {
  const file = fileOf(config);
  const remove = () => rmSync(file, { force: true });
  if (names.length === 0) remove();
  else writeFileSync(file, JSON.stringify(names));
  return remove;
}

/** Functions in the note of the start that is under way; none when no note exists. */
export function awaitedFunctions(config: Pick<Config, 'runDirectory'>): readonly string[] {
  try {
    return JSON.parse(readFileSync(fileOf(config), 'utf8')) as string[];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

function fileOf({ runDirectory }: Pick<Config, 'runDirectory'>): string {
  return path.join(runDirectory, 'awaited-functions.json');
}
