import { dirname, join } from 'node:path';
import { sha256 } from '../artifact/artifact.ts';
import { keepFile, publishFile, readKeptFile } from '../publish.ts';
import { toolchain } from '../toolchain.ts';
import { type Bundle, bundle } from './bundle.ts';
import { type ComponentStageResult, findSource, hasWorkflows, isNative, type Source } from './source.ts';

/**
 * The `component` command: source → component. `store` is the folder of compiled components; an unwritable store only costs time.
 * @throws BuildError
 */
export async function runComponentStage(
  input: string,
  output: string,
  store: string | undefined,
): Promise<ComponentStageResult> {
  const started = performance.now();
  const source = await findSource(input);
  if (isNative(source)) {
    const { runNativeStage } = await import('../native/stage.ts');
    return runNativeStage(source, output, store);
  }
  const bundled = await bundle(source);
  const bundleMs = Math.round(performance.now() - started);
  const cache = store === undefined ? null : join(store, `${componentKey(bundled.code)}.wasm`);
  const cachedComponent = cache === null ? null : await readKeptFile(cache);
  const [component, notes] = await Promise.all([
    cachedComponent ?? compile(bundled, dirname(output)),
    hasWorkflows(source, bundled.files) ? check(source) : [],
  ]);
  if (cache !== null && cachedComponent === null) await keepFile(cache, component).catch(() => undefined);
  await publishFile(output, component);
  const compileMs = Math.round(performance.now() - started) - bundleMs;
  const how = cachedComponent ? 'unchanged' : `bundled in ${bundleMs} ms, compiled in ${compileMs} ms`;
  return {
    ok: true,
    path: output,
    hash: sha256(component),
    bytes: component.length,
    cached: cachedComponent !== null,
    files: bundled.files,
    notes,
    timings: { bundleMs, compileMs },
    summary: `${output}: ${(component.length / 1024).toFixed(0)} KiB, ${how}${notes.map((note) => `\n${note}`).join('')}`,
  };
}

/** Loads the compiler, which takes long, only when a source needs it. */
async function compile(bundled: Bundle, directory: string): Promise<Uint8Array> {
  const { componentize } = await import('./componentize.ts');
  return componentize(bundled, directory);
}

async function check(source: Source): Promise<readonly string[]> {
  const { checkWorkflows } = await import('../graph/check.ts');
  return checkWorkflows(source);
}

/** Name of a compiled bundle: a hash of its text and the tools. */
const componentKey = (code: string): string => sha256(JSON.stringify([sha256(code), toolchain()]));
