import { ScriptFileError } from '#scheduler/functions/script-file.ts';
import { BuildError } from '../outcome.ts';
import { publishFile } from '../publish.ts';
import { packScript } from '../script/payload.ts';
import { rewrite } from '../script/rewrite.ts';
import { type Bundle, bundle } from './bundle.ts';
import { type ComponentStageResult, findSource, hasWorkflows, isNative, type Source } from './source.ts';

/**
 * The `component` command: source → script, or component of a native source. `store` is the folder of compiled native libraries; an unwritable
 * store only costs time.
 * @throws BuildError
 */
export async function runComponentStage(
  input: string,
  output: string,
  store: string | undefined,
): Promise<ComponentStageResult> {
  const source = await findSource(input);
  if (isNative(source)) {
    const { runNativeStage } = await import('../native/stage.ts');
    return runNativeStage(source, output, store);
  }
  const started = performance.now();
  const { script, files } = await buildScript(source);
  const bundleMs = Math.round(performance.now() - started);
  const notes = hasWorkflows(source, files) ? await check(source) : [];
  await publishFile(output, script);
  const summary = `${output}: ${(script.length / 1024).toFixed(0)} KiB, bundled in ${bundleMs} ms${noteLines(notes)}`;
  return { ok: true, path: output, files, notes, summary };
}

/**
 * Bundles a source into the file of a script. Runs no code of the source.
 * @param bundling the bundle of the source, if the caller has a bundler of its own
 * @throws BuildError
 */
export async function buildScript(
  source: Source,
  bundling: Promise<Bundle> = bundle(source),
): Promise<{ script: Uint8Array<ArrayBuffer>; files: readonly string[] }> {
  const { code, map, interfaces, files } = await bundling;
  try {
    return { script: packScript({ text: rewrite(code), map, imports: [...interfaces].sort() }), files };
  } catch (error) {
    if (!(error instanceof ScriptFileError)) throw error;
    throw new BuildError('build-failed', error.message, 'Import less, and pass large data as input.');
  }
}

/** Outcome of the `check` command. */
export interface CheckStageResult {
  readonly ok: true;
  /** Notes to the developer about the source's workflows. */
  readonly notes: readonly string[];
  readonly summary: string;
}

/** The `check` command: checks the workflows of a source, which runs the source. @throws BuildError */
export async function runCheckStage(input: string): Promise<CheckStageResult> {
  const notes = await check(await findSource(input));
  return { ok: true, notes, summary: `${input}: checked${noteLines(notes)}` };
}

async function check(source: Source): Promise<readonly string[]> {
  const { checkWorkflows } = await import('../graph/check.ts');
  return checkWorkflows(source);
}

const noteLines = (notes: readonly string[]): string => notes.map((note) => `\n${note}`).join('');
