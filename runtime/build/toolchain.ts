import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { world } from '#wit/generated/world.ts';

const HERE = dirname(fileURLToPath(import.meta.url));

let versions: Readonly<Record<string, string>> | undefined;

/** Versions of all tools of a build. `build` is a hash of this folder's sources, so that a change in them rebuilds everything. */
export function toolchain(): Readonly<Record<string, string>> {
  versions ??= {
    build: hashOfSources(),
    wit: `${world.package}@${world.version}+${hashOf(JSON.stringify(world))}`,
    'jco-transpile': versionOf('@bytecodealliance/jco-transpile'),
    esbuild: versionOf('esbuild'),
  };
  return versions;
}

function hashOfSources(): string {
  const files = readdirSync(HERE, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.(ts|js)$/.test(file) && !file.endsWith('.test.ts') && !/^(fixtures|testing)\b/.test(file))
    .sort();
  return hashOf(...files.flatMap((file) => [file, readFileSync(join(HERE, file))]));
}

function hashOf(...parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('hex').slice(0, 16);
}

/** Version of an installed package, in the nearest node_modules folder that has it. */
export function versionOf(name: string): string {
  const require = createRequire(import.meta.url);
  for (const folder of require.resolve.paths(name) ?? []) {
    try {
      const { version } = JSON.parse(readFileSync(join(folder, name, 'package.json'), 'utf8')) as { version: string };
      return version;
    } catch {
      // The package is not in this node_modules: try the next one up.
    }
  }
  throw new Error(`${name} is not installed`);
}
