import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { $init, generate } from '@bytecodealliance/jco-transpile/component';
import { BuildError } from '../outcome.ts';
import { toolchain } from '../toolchain.ts';
import { WasmError } from '../wasm/binary.ts';
import { GLUE_FILE, META_FILE, TYPE_FILE, TYPE_TEXT } from './artifact.ts';
import { prepareCoreModules } from './core-modules.ts';
import { rewriteGlue } from './glue.ts';
import { artifactHashOf, sha256 } from './hash.ts';
import { checkKind } from './kind.ts';
import type { ArtifactMeta, ArtifactOptions } from './meta-schema.ts';
import { checkWorld } from './world.ts';

/**
 * Makes a component into an artifact: checks it, transpiles it with jco (JSPI, async `run`, asynchronous instantiation), rewrites the glue,
 * meters and limits its core modules, and writes everything into `directory`, which must not exist. Runs in the build process.
 */
export async function makeArtifact(
  component: Uint8Array,
  directory: string,
  options: ArtifactOptions,
): Promise<ArtifactMeta> {
  const clock = stopwatch();
  checkKind(component);
  const imports = await asBuildError(() => checkWorld(component));
  const checkMs = clock();
  await $init;
  const { glue, modules } = await asBuildError(async () => transpile(component));
  const transpileMs = clock();
  const prepared = await asBuildError(async () => prepareCoreModules(modules, glue.helpers, options.memoryPages));
  const meterMs = clock();

  await mkdir(directory);
  await writeFile(join(directory, GLUE_FILE), glue.source);
  await writeFile(join(directory, TYPE_FILE), TYPE_TEXT);
  for (const { module, bytes } of prepared) await writeFile(join(directory, module.file), bytes);
  const meta: ArtifactMeta = {
    hash: artifactHashOf(sha256(component), options),
    component: { hash: sha256(component), bytes: component.length },
    options,
    toolchain: toolchain(),
    imports,
    coreModules: prepared.map(({ module }) => module),
    glue: { file: GLUE_FILE, bytes: Buffer.byteLength(glue.source), rewrites: glue.rewrites },
    timings: { checkMs, transpileMs, meterMs, writeMs: clock() },
    createdAt: new Date().toISOString(),
  };
  await writeFile(join(directory, META_FILE), `${JSON.stringify(meta, null, 2)}\n`);
  return meta;
}

function transpile(component: Uint8Array) {
  const { files } = generate(component, {
    name: 'app',
    instantiation: { tag: 'async' },
    asyncMode: { tag: 'jspi', val: { imports: [], exports: ['run'] } },
    noTypescript: true,
    noNodejsCompat: true,
    noNamespacedExports: false,
    base64Cutoff: 0,
  });
  const modules = new Map(files.filter(([name]) => name.endsWith('.wasm')));
  const source = files.find(([name]) => name === GLUE_FILE)?.[1];
  if (!source) throw new Error('jco made no glue');
  return { glue: rewriteGlue(new TextDecoder().decode(source)), modules };
}

/** Turns the tools' errors into a BuildError: their input is untrusted, so the component is at fault. */
async function asBuildError<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    if (error instanceof BuildError) throw error;
    if (error instanceof WasmError || error instanceof WebAssembly.CompileError || isComponentError(error)) {
      const what = error instanceof Error ? error.message : String(error);
      throw new BuildError(
        'build-failed',
        `The component is not valid or uses features that this platform does not run: ${what}`,
        'Check it with `wasm-tools validate --features all`; rebuild it without threads, 64-bit memory and garbage collection.',
      );
    }
    throw error;
  }
}

const isComponentError = (error: unknown): boolean =>
  error instanceof WebAssembly.RuntimeError ||
  (error instanceof Error && error.name === 'ComponentError') ||
  (error instanceof Error && error.constructor.name === 'ComponentError');

/** Returns a function that returns the milliseconds since its previous call; its first call returns those since `stopwatch()`. */
function stopwatch(): () => number {
  let last = performance.now();
  return () => {
    const now = performance.now();
    const passed = now - last;
    last = now;
    return Math.round(passed * 10) / 10;
  };
}
