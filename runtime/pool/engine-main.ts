/**
 * Makes the engine of this installation, its artifact and its plan, unless they are there: `node engine-main.ts`. It is our own code, so the program
 * needs no confinement.
 */
import { isEngineReady } from '../build/script/installed.ts';

// The tools take half a second to load.
if (!(await isEngineReady())) await (await import('./make-engine.ts')).makeEngineArtifact();
