/** The public interface of this folder. */
export type { Artifact, ArtifactMeta, ArtifactOptions } from './artifact/artifact.ts';
export { type ArtifactBuildOptions, type BuildOutcome, buildArtifact } from './artifact/build.ts';
export type { CoreModule } from './artifact/core-modules.ts';
export { artifactHashOf } from './artifact/hash.ts';
export { buildComponent, type ComponentBuildOptions, type ComponentOutcome } from './component/build.ts';
export type { BuildCode, BuildFailure, Diagnostic } from './outcome.ts';
export { MAX_DESCRIPTION_BYTES, readPlainFile } from './plain-file.ts';
export { readArtifact, readArtifactAsItIs, removeUnusedArtifact } from './store.ts';
