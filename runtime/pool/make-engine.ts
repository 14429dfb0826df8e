import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { artifactHashOf } from '../build/artifact/artifact.ts';
import { makeArtifact } from '../build/artifact/make.ts';
import { ENGINE_OPTIONS, ensureEngine, installedArtifacts } from '../build/script/installed.ts';
import { makeTemporary, publishArtifact, readArtifact, removeTree } from '../build/store.ts';
import { keepPlan, keptPlan } from './examine.ts';
import { planFiles } from './measure.ts';

/** Makes the engine of this installation, its artifact and its plan; what is there stays. Takes 2 to 5 s of CPU time, and says so on standard error. */
export async function makeEngineArtifact(): Promise<void> {
  process.stderr.write('  preparing the engine of scripts, once for this installation (a few seconds) …\n');
  const { hash, component } = await ensureEngine();
  const store = await installedArtifacts();
  await mkdir(store, { recursive: true });
  const artifactHash = artifactHashOf(hash, ENGINE_OPTIONS);
  if (!(await readArtifact(store, artifactHash))) {
    const temporary = await makeTemporary(store);
    try {
      await makeArtifact(component, join(temporary, 'artifact'), ENGINE_OPTIONS);
      await publishArtifact(join(temporary, 'artifact'), store, artifactHash);
    } finally {
      await removeTree(temporary);
    }
  }
  const artifact = await readArtifact(store, artifactHash);
  if (!artifact) throw new Error(`the artifact of the engine ${hash} is not whole`);
  if (!(await keptPlan(artifact))) await keepPlan(artifact, await planFiles(artifact.directory, artifact.coreModules));
}
