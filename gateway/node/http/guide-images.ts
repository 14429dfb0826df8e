import { readFile } from 'node:fs/promises';

/** An image of the guides from `docs/`; null when there is none of this name. */
export async function guideImageOf(name: string): Promise<Uint8Array<ArrayBuffer> | null> {
  try {
    return await readFile(new URL(`../../../docs/${name}`, import.meta.url));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}
