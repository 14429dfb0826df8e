import { readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { defaultHome, ROOT } from '#infra/install.ts';

export { INSTALLED, pinnedNode, ROOT } from '#infra/install.ts';

/** The platform's home: `PIE_HOME`, else `.pie` in the clone or, for an installed Pie, in the user's directory. */
export function home(environment: NodeJS.ProcessEnv = process.env): string {
  return path.resolve(environment.PIE_HOME || defaultHome());
}

/** Compiled libraries of native builds, shared by all clones and homes: `$XDG_CACHE_HOME/pie/builds` or `~/.cache/pie/builds`. */
export function buildCache(environment: NodeJS.ProcessEnv = process.env): string {
  return path.join(environment.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'pie', 'builds');
}

/** Pie's version, as package.json states it. */
export function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
}
