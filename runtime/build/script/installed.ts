import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { artifactHashOf, DEFAULT_MEMORY_PAGES, PLAN_FILE, sha256 } from '../artifact/artifact.ts';
import { publishFile } from '../publish.ts';
import { readArtifact } from '../store.ts';
import { toolchain, versionOf } from '../toolchain.ts';

/** The engine on which this installation evaluates new scripts. */
export interface InstalledEngine {
  /** sha256 of the component. */
  readonly hash: string;
  readonly component: Uint8Array;
}

/** The engine of an installed package, which was made with the package and needs no componentizer; absent in a clone. */
export const SHIPPED_ENGINE = fileURLToPath(new URL('engine.wasm', import.meta.url));

/** What an engine is made of, besides the prelude and the tools: a change makes another engine. */
const SOURCES = [
  new URL('engine.ts', import.meta.url),
  new URL('loader.ts', import.meta.url),
  new URL('../component/componentize.ts', import.meta.url),
  new URL('../wasm/free-chunks.ts', import.meta.url),
].map((url) => fileURLToPath(url));
const PRELUDE = fileURLToPath(new URL('../component/prelude', import.meta.url));

let folder: Promise<string> | undefined;

/**
 * The folder of this installation's engine. All clones and homes of a user share an engine that is made of the same sources by the same tools, and
 * all installed packages the one that they ship.
 */
export function engineFolder(environment: NodeJS.ProcessEnv = process.env): Promise<string> {
  folder ??= engineKey().then((key) =>
    join(environment.XDG_CACHE_HOME || join(homedir(), '.cache'), 'pie', 'engines', key),
  );
  return folder;
}

/** The folder, in that of the engine, of its artifact. */
export const installedArtifacts = async (): Promise<string> => join(await engineFolder(), 'artifacts');

async function engineKey(): Promise<string> {
  const shipped = await shippedEngine();
  if (shipped) return sha256(shipped).slice(0, 16);
  const { build: _, ...tools } = toolchain();
  const hash = createHash('sha256').update(
    JSON.stringify({ ...tools, 'componentize-qjs': versionOf('componentize-qjs') }),
  );
  const prelude = (await readdir(PRELUDE)).sort().map((file) => join(PRELUDE, file));
  for (const file of [...SOURCES, ...prelude]) hash.update(basename(file)).update(await readFile(file));
  return hash.digest('hex').slice(0, 16);
}

async function shippedEngine(): Promise<Uint8Array | null> {
  return existsSync(SHIPPED_ENGINE) ? readFile(SHIPPED_ENGINE) : null;
}

/** Options of the build of an engine's artifact. The limit counts in examinations and evaluations only: an instance's limit is its function's. */
export const ENGINE_OPTIONS = { memoryPages: DEFAULT_MEMORY_PAGES };

/** True when the engine of this installation is made and built. */
export async function isEngineReady(): Promise<boolean> {
  const engine = await installedEngine();
  if (!engine) return false;
  const artifact = await readArtifact(await installedArtifacts(), artifactHashOf(engine.hash, ENGINE_OPTIONS));
  return artifact !== null && existsSync(join(artifact.directory, PLAN_FILE));
}

/** An engine's file is named by its hash. */
const FILE = /^([0-9a-f]{64})\.wasm$/;

/** Reads the engine of this installation; null before it was made. Of several, which processes made at the same time, the first by name. */
export async function installedEngine(): Promise<InstalledEngine | null> {
  const directory = await engineFolder();
  for (const name of (await readdir(directory).catch(() => [])).sort()) {
    const hash = FILE.exec(name)?.[1];
    if (hash === undefined) continue;
    const component = await readFile(join(directory, name));
    // After a power loss, a file can be empty under its final name.
    if (sha256(component) === hash) return { hash, component };
  }
  return null;
}

/** Returns the engine of this installation. A clone makes it when there is none: 3 s of CPU time. */
export async function ensureEngine(): Promise<InstalledEngine> {
  const known = await installedEngine();
  if (known) return known;
  const directory = await engineFolder();
  await mkdir(directory, { recursive: true });
  const component = (await shippedEngine()) ?? (await (await import('./engine.ts')).makeEngine(directory));
  const hash = sha256(component);
  await publishFile(join(directory, `${hash}.wasm`), component);
  return (await installedEngine()) ?? { hash, component };
}
