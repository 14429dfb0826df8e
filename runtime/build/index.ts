/** The public interface of this folder. */
export type { Artifact } from './artifact/artifact.ts';
export { artifactHashOf } from './artifact/artifact.ts';
export { type ArtifactBuildOptions, type BuildOutcome, buildArtifact } from './artifact/build.ts';
export type { ArtifactMeta, ArtifactOptions, CoreModule } from './artifact/meta-schema.ts';
export { buildComponent, type ComponentBuildOptions, type ComponentOutcome } from './component/build.ts';
export type { BuildCode, BuildFailure, Diagnostic } from './failure-schema.ts';
export { MAX_DESCRIPTION_BYTES, readPlainFile } from './publish.ts';
export { readArtifact, readArtifactAsItIs, removeUnusedArtifact } from './store.ts';
