import { readFile } from 'node:fs/promises';
import { join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Source } from '../component/source.ts';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import {
  type Compiled,
  inFolder,
  inputPath,
  MissingCompilerError,
  projectFiles,
  type Ran,
  runCompiler,
} from './compiler.ts';

/** Folder of `pie.h`. */
const INCLUDE = fileURLToPath(new URL('../../../wit/generated', import.meta.url));

const COMPILE_LIMIT_MS = 30_000;
const COMPILE_LIMIT_KIB = 2 * 2 ** 20;
/** The stack comes first in memory, so that an overflow runs past address 0 and traps. */
const STACK_BYTES = 65_536;

const TARGET = '--target=wasm32-wasi';
const COMPILE_FLAGS = [
  TARGET,
  '-c',
  '-std=c11',
  '-O2',
  '-mbulk-memory',
  '-DPIE_MAIN',
  `-I${INCLUDE}`,
  '-Werror=implicit-function-declaration',
  '-Werror=return-type',
  '-Werror=int-conversion',
  '-fno-color-diagnostics',
  '-fno-caret-diagnostics',
  // Without this flag, a clang that crashes leaves a copy of the source in the temporary folder.
  '-fno-crash-diagnostics',
];
/** These flags contain no optimisation level: with one, clang runs any `wasm-opt` on the path. */
const LINK_FLAGS = [
  TARGET,
  '-nostdlib',
  '-Wl,--no-entry',
  '-Wl,--strip-all',
  '-Wl,--stack-first',
  `-Wl,-z,stack-size=${STACK_BYTES}`,
  '-fno-color-diagnostics',
];

const INSTALL =
  'Install LLVM: `apt-get install clang lld` on Debian and Ubuntu (and wasi-libc for string.h or malloc); `brew install llvm lld` on macOS.';

class NoCompilerError extends MissingCompilerError {
  constructor(message: string) {
    super(message, INSTALL);
  }
}

/**
 * Compiles a C file and what it includes into a core module, with limits on time and memory. wasi-libc is linked where it is installed.
 * @param scratch folder for temporary files
 * @throws {NoCompilerError} without clang or its linker; BuildError with the places of all faults when the source does not compile; BuildError
 *   when its name could be taken for an option
 */
export async function compileC(source: Source, scratch: string): Promise<Compiled> {
  return inFolder(scratch, async (directory) => {
    const output = join(directory, 'main.wasm');
    const dependencies = join(directory, 'main.d');
    const object = join(directory, 'main.o');
    // Without wasi-libc, clang prints the bare name `libc.a` instead of a path.
    const libc = (await clang([TARGET, '-print-file-name=libc.a'], source.directory)).output.trim();
    const compile = [...COMPILE_FLAGS, '-MMD', '-MF', dependencies, inputPath(source), '-o', object];
    const link = [...LINK_FLAGS, object, ...(libc === 'libc.a' ? [] : ['-lc']), '-o', output];
    for (const args of [compile, link]) {
      const { code, errors } = await clang(args, source.directory);
      if (code !== 0) throw await failure(errors, source.directory);
    }
    const module = await readFile(output);
    refuseWasi(module);
    return { module, files: projectFiles(await readFile(dependencies, 'utf8'), source.directory) };
  });
}

async function clang(args: readonly string[], cwd: string): Promise<Ran> {
  const ran = await runCompiler('clang', args, { cwd, limitMs: COMPILE_LIMIT_MS, limitKib: COMPILE_LIMIT_KIB });
  if (ran === null) throw new NoCompilerError('The C compiler, clang, is not on the PATH.');
  if (/No available targets are compatible/.test(ran.errors))
    throw new NoCompilerError('clang has no target for WebAssembly (wasm32).');
  if (
    /unable to execute command.*(?:not found|No such file|executable)|posix_spawn failed|wasm-ld.*(?:not found|No such file)/i.test(
      ran.errors,
    )
  ) {
    throw new NoCompilerError('clang found no linker for WebAssembly (wasm-ld of lld).');
  }
  return ran;
}

const MESSAGE = /^(.+?):(\d+):(\d+): (?:fatal )?error: (.*)$/;

/** Turns the output of the compiler or linker into a BuildError with places in the source. */
async function failure(errors: string, directory: string): Promise<BuildError> {
  const diagnostics: Diagnostic[] = [];
  for (const line of errors.split('\n')) {
    const [, file, row, column, text] = MESSAGE.exec(line) ?? [];
    if (file === undefined || text === undefined) continue;
    const lines = (await readFile(resolve(directory, file), 'utf8').catch(() => '')).split('\n');
    const at = { line: Number(row), column: Number(column) };
    diagnostics.push({ file: normalize(file), ...at, text, source: lines[at.line - 1] ?? '' });
  }
  const [first] = diagnostics;
  if (first) {
    const more = diagnostics.length > 1 ? ` (and ${diagnostics.length - 1} more)` : '';
    return new BuildError(
      'build-failed',
      `The source does not compile: ${first.file}:${first.line}:${first.column}: ${first.text}${more}`,
      /file not found/.test(first.text)
        ? 'Check the path; headers of the C library need the package wasi-libc.'
        : 'Correct the source at that place and deploy again.',
      diagnostics,
    );
  }
  const undefinedSymbol = /undefined symbol: (.*)/.exec(errors)?.[1];
  if (undefinedSymbol !== undefined) {
    return new BuildError(
      'build-failed',
      `The source uses ${undefinedSymbol}, which nothing defines.`,
      undefinedSymbol === 'pie_run'
        ? 'Define the program: pie_result_string_string pie_run(pie_string input).'
        : 'Define it; functions of the C library need the package wasi-libc.',
    );
  }
  return new BuildError(
    'build-failed',
    `clang failed: ${errors.trim().slice(-1000) || 'it printed no message'}`,
    'Correct the source and deploy again.',
  );
}

/** Refuses imports of WASI, which inferlets do not have: the C library asks WASI for files, clocks and standard output. */
function refuseWasi(module: Uint8Array): void {
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(module as Uint8Array<ArrayBuffer>));
  const wasi = imports.filter((entry) => entry.module.startsWith('wasi_')).map(({ name }) => name);
  if (wasi.length === 0) return;
  throw new BuildError(
    'build-failed',
    `The program needs ${wasi.join(', ')} of WASI, which inferlets do not have.`,
    'Leave out what stands behind it: stdio.h (snprintf as well; use pie_append and pie_append_number), files, clocks, exit.',
  );
}
