import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The clone's root. */
export const ROOT = path.resolve(fileURLToPath(new URL('../..', import.meta.url)));

/** Everything that the platform keeps: `PIE_HOME`, `.pie` in the clone by default. */
export function home(environment: NodeJS.ProcessEnv = process.env): string {
  return path.resolve(environment.PIE_HOME || path.join(ROOT, '.pie'));
}

/** Where the platform on this machine listens. */
export function port(environment: NodeJS.ProcessEnv = process.env): number {
  return Number(environment.PIE_PORT || 8787);
}

/** The Node that the platform's programs run under: the pinned one. */
export function pinnedNode(): string {
  const pinned = path.join(ROOT, 'node_modules', '.bin', 'node');
  return existsSync(pinned) ? pinned : process.execPath;
}
