import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { WIT_DIRECTORY } from '#wit/generate/generate.ts';
import { artifactHashOf, sha256 } from '../build/artifact/artifact.ts';
import { makeArtifact } from '../build/artifact/make.ts';
import { withEngine } from '../build/component/componentize.ts';
import type { Artifact } from '../build/index.ts';
import { publishArtifact, readArtifact } from '../build/store.ts';
import { toolchain, versionOf } from '../build/toolchain.ts';
import type { Program } from '../lowering/instance.ts';
import { ModuleFiles, readProgram } from '../pool/artifacts.ts';
import { keepPlan } from '../pool/examine.ts';
import { planFiles } from '../pool/measure.ts';
import { TEST_ARTIFACTS, TEST_COMPONENTS } from './cache.ts';

/** Builds a JavaScript inferlet, as plain as possible: no bundling and no prelude. */
export async function testComponent(source: string): Promise<Uint8Array> {
  const key = sha256(JSON.stringify([toolchain(), versionOf('componentize-qjs'), source])).slice(0, 32);
  const path = join(TEST_COMPONENTS, `${key}.wasm`);
  const known = await readFile(path).catch(() => null);
  if (known) return known;
  const component = await withEngine(WIT_DIRECTORY, source);
  await keepFile(path, component);
  return component;
}

/** Writes a file of the tests' cache, so that other processes see the whole file or none. */
export async function keepFile(path: string, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}-${randomUUID()}`;
  await writeFile(temporary, bytes);
  await rename(temporary, path);
}

/** Makes the artifact of a component, in this process. @throws BuildError */
export async function testArtifact(component: Uint8Array, memoryPages = 1024): Promise<Artifact> {
  const hash = artifactHashOf(sha256(component), { memoryPages });
  const known = await readArtifact(TEST_ARTIFACTS, hash);
  if (known) return known;
  await mkdir(TEST_ARTIFACTS, { recursive: true });
  const temporary = join(TEST_ARTIFACTS, `.tmp-${process.pid}-${randomUUID()}`);
  await makeArtifact(component, temporary, { memoryPages });
  await publishArtifact(temporary, TEST_ARTIFACTS, hash);
  const artifact = await readArtifact(TEST_ARTIFACTS, hash);
  if (!artifact) throw new Error('the artifact is not whole');
  return artifact;
}

/** A program that this process has compiled. */
export interface TestProgram extends Program {
  readonly artifact: Artifact;
}

const files = new ModuleFiles();
const modules = new Map<string, Promise<WebAssembly.Module>>();

/** Reads and compiles an artifact, planned in this process. */
export async function testProgram(artifact: Artifact): Promise<TestProgram> {
  const stored = await readProgram(artifact.hash, artifact, files, async () => {
    const plan = await planFiles(artifact.directory, artifact.coreModules);
    await keepPlan(artifact, plan);
    return plan;
  });
  const compiled = stored.modules.map(async ({ file, hash, bytes }) => {
    const compiling = modules.get(hash) ?? WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>);
    modules.set(hash, compiling);
    return [file, await compiling] as const;
  });
  return { artifact, plan: stored.plan, modules: new Map(await Promise.all(compiled)) };
}
