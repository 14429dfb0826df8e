import { readFile } from 'node:fs/promises';
import { BuildError } from '../outcome.ts';
import { DEFAULT_MEMORY_PAGES, MAX_MEMORY_PAGES } from './artifact.ts';
import { makeArtifact } from './make.ts';
import type { ArtifactMeta } from './meta-schema.ts';

export interface ArtifactStageResult {
  readonly ok: true;
  readonly meta: ArtifactMeta;
  readonly summary: string;
}

/** The `artifact` command: reads the component, writes the artifact's folder. Throws BuildError. */
export async function runArtifactStage(
  input: string,
  output: string,
  pages: string | undefined,
): Promise<ArtifactStageResult> {
  const memoryPages = pages === undefined ? DEFAULT_MEMORY_PAGES : Number(pages);
  if (!Number.isInteger(memoryPages) || memoryPages < 0 || memoryPages > MAX_MEMORY_PAGES) {
    throw new BuildError(
      'build-failed',
      `"${pages}" is no number of memory pages.`,
      `Give --memory-pages an integer from 0 to ${MAX_MEMORY_PAGES}.`,
    );
  }
  const meta = await makeArtifact(await readFile(input), output, { memoryPages });
  const { checkMs, transpileMs, meterMs, writeMs } = meta.timings;
  const summary = `${output}: ${meta.coreModules.length} core modules; check ${checkMs} ms, transpile ${transpileMs} ms, meter ${meterMs} ms, write ${writeMs} ms`;
  return { ok: true, meta, summary };
}
