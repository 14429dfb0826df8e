import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { WIT_DIRECTORY } from '#wit/generate/generate.ts';
import { artifactHashOf, sha256 } from '../build/artifact/hash.ts';
import { makeArtifact } from '../build/artifact/make.ts';
import { withEngine } from '../build/component/componentize.ts';
import type { Artifact } from '../build/index.ts';
import { publishDirectory, readArtifact } from '../build/store.ts';
import { toolchain } from '../build/toolchain.ts';
import type { Plan } from '../lowering/plan.ts';
import { type LoadedProgram, loadProgram, ModuleCache } from '../pool/artifacts.ts';
import { planHere } from '../pool/planner.ts';
import { TEST_ARTIFACTS, TEST_COMPONENTS } from './cache.ts';

/** Builds a JavaScript inferlet, as plain as possible: no bundling and no prelude. */
export async function testComponent(source: string): Promise<Uint8Array> {
  const key = sha256(JSON.stringify([toolchain(), source])).slice(0, 32);
  const path = join(TEST_COMPONENTS, `${key}.wasm`);
  const known = await readFile(path).catch(() => null);
  if (known) return known;
  const component = await withEngine(WIT_DIRECTORY, source);
  await mkdir(TEST_COMPONENTS, { recursive: true });
  const temporary = `${path}.${process.pid}-${randomUUID()}`;
  await writeFile(temporary, component);
  await rename(temporary, path);
  return component;
}

/** Makes the artifact of a component, in this process. @throws BuildError */
export async function testArtifact(component: Uint8Array, memoryPages = 1024): Promise<Artifact> {
  const hash = artifactHashOf(sha256(component), { memoryPages });
  const known = await readArtifact(TEST_ARTIFACTS, hash);
  if (known) return known;
  await mkdir(TEST_ARTIFACTS, { recursive: true });
  const temporary = join(TEST_ARTIFACTS, `.tmp-${process.pid}-${randomUUID()}`);
  await makeArtifact(component, temporary, { memoryPages });
  await publishDirectory(temporary, join(TEST_ARTIFACTS, hash));
  const artifact = await readArtifact(TEST_ARTIFACTS, hash);
  if (!artifact) throw new Error('the artifact is not whole');
  return artifact;
}

/** A program that the lean lowering runs. */
export type PlannedProgram = LoadedProgram & { readonly plan: Plan };

/** Loads an artifact, planned in this process. @throws Error when only the glue can run it */
export async function testProgram(artifact: Artifact, cache = new ModuleCache()): Promise<PlannedProgram> {
  const program = await loadProgram(artifact, cache, planHere);
  const { plan } = program;
  if (!plan) throw new Error('the component cannot be planned');
  return { ...program, plan };
}
