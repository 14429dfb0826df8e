import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** A folder that is deleted at the end of the block. */
export function temporaryFolder(): Disposable & { readonly path: string } {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-index-'));
  return { path: folder, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}
