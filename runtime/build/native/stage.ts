import { dirname, extname } from 'node:path';
import { type ComponentStageResult, findSource, type NATIVE_ENDINGS, type Source } from '../component/source.ts';
import { BuildError } from '../outcome.ts';
import { publishFile } from '../publish.ts';
import { compileC } from './clang.ts';
import { type Compiled, MissingCompilerError } from './compiler.ts';
import { prebuiltModule, withSourceNote } from './prebuilt.ts';
import { compileRust } from './rustc.ts';
import { readModule, wrapForeign, wrapModule } from './wrap.ts';

type Compiler = (source: Source, scratch: string, store?: string) => Promise<Compiled>;

const COMPILERS: Readonly<Record<(typeof NATIVE_ENDINGS)[number], Compiler>> = {
  '.c': compileC,
  '.rs': compileRust,
  '.wasm': readModule,
};

/** Compiles a C or Rust file, or reads a module. @throws BuildError */
async function compile(source: Source, scratch: string, store?: string): Promise<Compiled> {
  const compiler: Compiler | undefined = (COMPILERS as Readonly<Record<string, Compiler>>)[extname(source.entry)];
  if (compiler) return compiler(source, scratch, store);
  throw new BuildError(
    'build-failed',
    `${source.entry} is not a C or Rust source.`,
    'Name a .c or .rs file, or a module.',
  );
}

/**
 * The `component` command for C, Rust or a core module. Without a compiler, it uses the module beside the source if that was compiled from
 * exactly this source.
 * `store` is the folder that keeps the compiled crate `pie`. Throws BuildError.
 */
export async function runNativeStage(
  source: Source,
  output: string,
  store: string | undefined,
): Promise<ComponentStageResult> {
  const started = performance.now();
  const { module, files } = await compile(source, dirname(output), store).catch(async (error: unknown) => {
    const prebuilt = error instanceof MissingCompilerError ? await prebuiltModule(source.entry) : null;
    if (!prebuilt) throw error;
    return { module: prebuilt, files: [] };
  });
  const compileMs = Math.round(performance.now() - started);
  const component = await (extname(source.entry) === '.wasm' ? wrapForeign : wrapModule)(module);
  await publishFile(output, component);
  return {
    ok: true,
    path: output,
    files,
    notes: [],
    summary: `${output}: ${(component.length / 1024).toFixed(1)} KiB, ${files.length > 0 ? `compiled in ${compileMs} ms` : 'of the module beside it'}`,
  };
}

/** The `module` command: C or Rust → core module with the hash of its sources, to be stored beside them. Throws BuildError. */
export async function runModuleStage(
  input: string,
  output: string,
): Promise<{ readonly ok: true; readonly summary: string }> {
  const source = await findSource(input);
  const { module } = await compile(source, dirname(output));
  const noted = await withSourceNote(module, source.entry);
  await publishFile(output, noted);
  return { ok: true, summary: `${output}: ${noted.length} bytes` };
}
