import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { dirname, extname, join, normalize, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Source } from '../component/source.ts';
import { BuildError, type Diagnostic } from '../outcome.ts';

/** Folder of `pie.h`. */
const INCLUDE = fileURLToPath(new URL('../../../wit/generated', import.meta.url));

const COMPILE_LIMIT_MS = 30_000;
const COMPILE_LIMIT_KIB = 2 * 2 ** 20;
/** Most characters of the compiler's output. */
const MAX_OUTPUT_CHARACTERS = 1_000_000;
/** The stack comes first in memory, so that an overflow runs past address 0 and traps. */
const STACK_BYTES = 65_536;

const TARGET = '--target=wasm32-wasi';
const COMPILE_FLAGS = [
  ...[TARGET, '-c', '-std=c11', '-O2', '-mbulk-memory', '-DPIE_MAIN', `-I${INCLUDE}`],
  ...['-Werror=implicit-function-declaration', '-Werror=return-type', '-Werror=int-conversion'],
  ...['-fno-color-diagnostics', '-fno-caret-diagnostics'],
];
/** No optimisation level: with one, clang runs any `wasm-opt` on the path. */
const LINK_FLAGS = [
  ...[TARGET, '-nostdlib', '-Wl,--no-entry', '-Wl,--strip-all', '-Wl,--stack-first'],
  ...[`-Wl,-z,stack-size=${STACK_BYTES}`, '-fno-color-diagnostics'],
];

const INSTALL =
  'Install LLVM: `apt-get install clang lld` on Debian and Ubuntu (and wasi-libc for string.h or malloc); `brew install llvm lld` on macOS.';

/** Thrown when the compiler is not installed. */
export class NoCompilerError extends BuildError {
  constructor(what: string) {
    super('build-failed', `${what} is missing, which compiles C to WebAssembly.`, INSTALL);
    this.name = 'NoCompilerError';
  }
}

/** True for a source that this module compiles. */
export const isNative = (entry: string): boolean => extname(entry) === '.c';

export interface Compiled {
  readonly module: Uint8Array;
  /** The project's files that were compiled, relative to the project. */
  readonly files: readonly string[];
}

/**
 * Compiles a C file and what it includes into a core module, with limits on time and memory. wasi-libc is linked where it is installed.
 * @param scratch folder for temporary files
 * @throws {NoCompilerError} without clang or its linker; BuildError with the faults' places when the source does not compile, or when its
 *   name could be taken for an option
 */
export async function compileC(source: Source, scratch: string): Promise<Compiled> {
  const directory = await mkdtemp(join(resolve(scratch), '.native-'));
  try {
    const output = join(directory, 'main.wasm');
    const dependencies = join(directory, 'main.d');
    const object = join(directory, 'main.o');
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
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** The source's path in a form that clang cannot take for an option (`-…`) or a file of options (`@file`). */
function inputPath({ directory, entry }: Source): string {
  const path = relative(directory, entry);
  if (!path.split(/[/\\]/).some((segment) => /^[-@]/.test(segment))) return `./${path}`;
  throw new BuildError(
    'build-failed',
    `The name ${path} begins with - or @, which compilers take for an option.`,
    'Rename the file or the folder.',
  );
}

interface Ran {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

async function clang(args: readonly string[], cwd: string): Promise<Ran> {
  // Not every system has these limits, so a timer bounds the time, too.
  const limits = `ulimit -c 0; ulimit -t ${COMPILE_LIMIT_MS / 1000}; ulimit -v ${COMPILE_LIMIT_KIB} 2>/dev/null`;
  const child = spawn('/bin/sh', ['-c', `${limits}; exec clang "$@"`, 'clang', ...args], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), COMPILE_LIMIT_MS);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    if (output.length < MAX_OUTPUT_CHARACTERS) output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (errors.length < MAX_OUTPUT_CHARACTERS) errors += text;
  });
  try {
    const code = await new Promise<number | null>((settle, reject) => {
      child.once('error', reject);
      child.once('close', settle);
    });
    const NOT_FOUND = 127;
    if (code === NOT_FOUND) throw new NoCompilerError('clang');
    if (/No available targets are compatible/.test(errors)) throw new NoCompilerError('A clang that knows wasm32');
    if (/unable to execute command|posix_spawn failed|wasm-ld.*(not found|No such file)/i.test(errors)) {
      throw new NoCompilerError('wasm-ld (of lld)');
    }
    if (code === null) {
      throw new BuildError(
        'build-timeout',
        `The compiler took longer than ${COMPILE_LIMIT_MS / 1000} s or more memory than it may, and was stopped.`,
        'Make the source smaller.',
      );
    }
    return { code, output, errors };
  } finally {
    clearTimeout(timer);
  }
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
    `clang failed: ${errors.trim().slice(-1000) || 'without a word'}`,
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

/** The project's own files in a dependency list in `make` format. */
function projectFiles(rule: string, directory: string): string[] {
  const paths = rule
    .slice(rule.indexOf(':') + 1)
    .replaceAll('\\\n', ' ')
    .match(/(?:\\ |\S)+/g);
  const own = (paths ?? []).map((path) => relative(directory, resolve(directory, path.replaceAll('\\ ', ' '))));
  return [...new Set(own)].filter((path) => !path.startsWith('..') && dirname(path) !== INCLUDE);
}
