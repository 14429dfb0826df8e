import { dirname } from 'node:path';
import { sha256 } from '../artifact/hash.ts';
import { findSource, type Source } from '../component/source.ts';
import type { ComponentStageResult } from '../component/stage.ts';
import { publishFile } from '../store.ts';
import { compileC, NoCompilerError } from './clang.ts';
import { prebuiltModule, withSourceNote } from './prebuilt.ts';
import { wrapModule } from './wrap.ts';

/** C → component. Without a compiler, uses the module beside the source if it was compiled from the same source. Throws BuildError. */
export async function runNativeStage(source: Source, output: string): Promise<ComponentStageResult> {
  const started = performance.now();
  const { module, files } = await compileC(source, dirname(output)).catch(async (error: unknown) => {
    const prebuilt = error instanceof NoCompilerError ? await prebuiltModule(source.entry) : null;
    if (!prebuilt) throw error;
    return { module: prebuilt, files: [] };
  });
  const compileMs = Math.round(performance.now() - started);
  const component = await wrapModule(module);
  await publishFile(output, component);
  return {
    ok: true,
    path: output,
    hash: sha256(component),
    bytes: component.length,
    cached: false,
    files,
    notes: [],
    timings: { bundleMs: 0, compileMs },
    summary: `${output}: ${(component.length / 1024).toFixed(1)} KiB, ${files.length > 0 ? `compiled in ${compileMs} ms` : 'of the module beside it'}`,
  };
}

/** The `module` command: C → core module with the hash of its sources, to be stored beside them. Throws BuildError. */
export async function runModuleStage(
  input: string,
  output: string,
): Promise<{ readonly ok: true; readonly summary: string }> {
  const source = await findSource(input);
  const { module } = await compileC(source, dirname(output));
  const noted = await withSourceNote(module, source.entry);
  await publishFile(output, noted);
  return { ok: true, summary: `${output}: ${noted.length} bytes` };
}
