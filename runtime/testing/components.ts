import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { componentize } from 'componentize-qjs';
import { WIT_DIRECTORY } from '#wit/generate/generate.ts';
import { type Artifact, buildArtifact } from '../build/index.ts';

/** Tests of one machine share what they build: a component is the same whenever its source and the contract are. */
const CACHE = join(tmpdir(), 'pie-test-components');

/** Builds a JavaScript inferlet, as plain as possible: no bundling and no prelude. */
export async function testComponent(source: string): Promise<Uint8Array> {
  const contract = await readFile(join(WIT_DIRECTORY, 'generated', 'world.ts'));
  const key = createHash('sha256').update(contract).update('\0').update(source).digest('hex').slice(0, 32);
  const path = join(CACHE, `${key}.wasm`);
  const known = await readFile(path).catch(() => null);
  if (known) return known;
  const { component } = await componentize({ witPath: WIT_DIRECTORY, jsSource: source, world: 'inferlet', stubWasi: true });
  await mkdir(CACHE, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, component);
  await rename(temporary, path);
  return component;
}

/** Builds the artifact of a component. @throws Error when the build fails. */
export async function testArtifact(component: Uint8Array, memoryPages = 1024): Promise<Artifact> {
  const outcome = await buildArtifact(component, { store: join(CACHE, 'artifacts'), memoryPages });
  if (!outcome.ok) throw new Error(`${outcome.code}: ${outcome.message} ${outcome.hint}`);
  return outcome.artifact;
}
