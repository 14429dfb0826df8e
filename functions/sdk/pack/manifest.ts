import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Exports } from './exports.ts';

/** The package's folder. */
export const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const FILE = `${PACKAGE}package.json`;

/** Rewrites the `exports` of package.json. */
export function rewriteExports(change: (exports: Exports) => Exports): void {
  const manifest = JSON.parse(readFileSync(FILE, 'utf8')) as { exports: Exports };
  const text = `${JSON.stringify({ ...manifest, exports: change(manifest.exports) }, null, 2)}\n`;
  writeFileSync(FILE, text);
}
