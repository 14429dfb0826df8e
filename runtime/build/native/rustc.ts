import { access, constants, readdir, readFile } from 'node:fs/promises';
import { delimiter, dirname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sha256 } from '../artifact/artifact.ts';
import type { Source } from '../component/source.ts';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import { keepFile, readKeptFile } from '../publish.ts';
import {
  type Compiled,
  inFolder,
  inputPath,
  MissingCompilerError,
  projectFiles,
  type Ran,
  runCompiler,
} from './compiler.ts';

/** The crate `pie`. */
const CRATE = fileURLToPath(new URL('../../../wit/generated/pie.rs', import.meta.url));

const COMPILE_LIMIT_MS = 60_000;
/** Limit on address space, into which the compiler also maps its own libraries. */
const COMPILE_LIMIT_KIB = 4 * 2 ** 20;
/** Rust's default for this target is 1 MiB. The linker puts the stack first in memory, so that an overflow runs past address 0 and traps. */
const STACK_BYTES = 262_144;
/** Maximum faults that a failure lists. */
const MAX_DIAGNOSTICS = 20;

const TARGET = 'wasm32-unknown-unknown';
const FLAGS = [
  '--edition=2021',
  `--target=${TARGET}`,
  '--error-format=json',
  '-Cpanic=abort',
  '-Copt-level=2',
  '-Ccodegen-units=1',
  '-Cstrip=symbols',
];
const CRATE_FLAGS = [...FLAGS, '--crate-type=rlib', '--crate-name=pie'];
/** Keeps the path of this clone out of the compiled crate: other clones use the crate, too. */
const WITHOUT_PATHS = `--remap-path-prefix=${dirname(CRATE)}=pie`;

const INSTALL = `Install Rust with its library for ${TARGET}: \`apt-get install rustc libstd-rust-dev-wasm32 lld\` on Debian and Ubuntu, \`rustup target add ${TARGET}\` where rustup installed Rust.`;

/**
 * Finds the first rustc of the PATH that can compile for WebAssembly: a machine may have several, some without the library for this target.
 * @throws {MissingCompilerError}
 */
export async function findRustc(path = process.env.PATH ?? ''): Promise<string> {
  let firstRustc: string | undefined;
  for (const folder of new Set(path.split(delimiter).filter((part) => part.startsWith('/')))) {
    const program = join(folder, 'rustc');
    const isThere = await access(program, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (!isThere) continue;
    firstRustc ??= program;
    if (await hasLibrary(program, folder)) return program;
  }
  throw firstRustc === undefined
    ? new MissingCompilerError('The Rust compiler, rustc, is not on the PATH.', INSTALL)
    : new MissingCompilerError(`${firstRustc} lacks the standard library for ${TARGET}.`, INSTALL);
}

async function hasLibrary(rustc: string, cwd: string): Promise<boolean> {
  const result = await run(rustc, ['--print', 'target-libdir', '--target', TARGET], cwd);
  if (result.code !== 0) return false;
  const files = await readdir(result.output.trim()).catch(() => []);
  return files.some((file) => file.startsWith('libstd-'));
}

async function run(rustc: string, args: readonly string[], cwd: string): Promise<Ran> {
  const result = await runCompiler(rustc, args, { cwd, limitMs: COMPILE_LIMIT_MS, limitKib: COMPILE_LIMIT_KIB });
  if (result === null) throw new MissingCompilerError(`The Rust compiler ${rustc} does not exist.`, INSTALL);
  return result;
}

/**
 * Compiles a Rust file with its modules, and the crate `pie`, into a core module, with limits on time and memory. It supports no other crates,
 * because their procedural macros and build scripts would run code of the source at the build.
 * @param scratch folder for temporary files
 * @param store folder that keeps the compiled crate for further sources; an unwritable one only costs time
 * @throws {MissingCompilerError} without rustc or the library; BuildError with the places of the faults when the source does not compile
 */
export async function compileRust(source: Source, scratch: string, store?: string): Promise<Compiled> {
  const input = inputPath(source);
  const rustc = await findRustc();
  return inFolder(scratch, async (directory) => {
    const dependencies = join(directory, 'inferlet.d');
    const library = await compiledCrate(rustc, directory, store);
    const args = [
      ...FLAGS,
      '--crate-type=cdylib',
      '--crate-name=inferlet',
      `--extern=pie=${library}`,
      '--emit=link,dep-info',
      `--out-dir=${directory}`,
      `-Clink-arg=-zstack-size=${STACK_BYTES}`,
      input,
    ];
    const { code, errors } = await run(rustc, args, source.directory);
    if (code !== 0) throw await failure(errors, source.directory);
    const module = await readFile(join(directory, 'inferlet.wasm'));
    refuseWithoutRun(module);
    const [rule = ''] = (await readFile(dependencies, 'utf8'))
      .split('\n')
      .filter((line) => line.startsWith(`${dependencies}:`));
    return { module, files: projectFiles(rule, source.directory) };
  });
}

/** Path of the compiled crate: the kept file in `store`, or a new file in `directory`. */
async function compiledCrate(rustc: string, directory: string, store: string | undefined): Promise<string> {
  const keptLibrary = store === undefined ? null : join(store, `libpie-${await crateKey(rustc, directory)}.rlib`);
  if (keptLibrary !== null && (await readKeptFile(keptLibrary)) !== null) return keptLibrary;
  const library = join(directory, 'libpie.rlib');
  const { code, errors } = await run(rustc, [...CRATE_FLAGS, WITHOUT_PATHS, CRATE, '-o', library], directory);
  if (code !== 0) throw await failure(errors, directory);
  if (keptLibrary !== null) await keepFile(keptLibrary, await readFile(library)).catch(() => undefined);
  return library;
}

/** Hash of everything that determines the compiled crate, with the version of rustc: rustc refuses a crate that another version compiled. */
async function crateKey(rustc: string, cwd: string): Promise<string> {
  const [{ output }, crate] = await Promise.all([run(rustc, ['--version', '--verbose'], cwd), readFile(CRATE)]);
  return sha256(JSON.stringify([output, CRATE_FLAGS, sha256(crate)]));
}

/** The members of a message of rustc that the build reads. */
interface Message {
  readonly message: string;
  readonly level: string;
  readonly spans: readonly Span[];
}
interface Span {
  readonly file_name: string;
  readonly line_start: number;
  readonly column_start: number;
  readonly is_primary: boolean;
  readonly label: string | null;
  readonly expansion: { readonly span: Span } | null;
}

/** Turns the output of rustc into a BuildError with places in the source. */
async function failure(errors: string, directory: string): Promise<BuildError> {
  const messages = errors.split('\n').flatMap(parsed);
  if (messages.some(({ message }) => /^linker .* not found/.test(message))) {
    return new MissingCompilerError('rustc found no linker for WebAssembly (lld).', INSTALL);
  }
  const placed = messages.flatMap(({ message, spans }) => {
    const span = sourceSpan(spans.find((one) => one.is_primary));
    return span ? [{ message, span }] : [];
  });
  const diagnostics: Diagnostic[] = [];
  for (const { message, span } of placed.slice(0, MAX_DIAGNOSTICS)) {
    const lines = (await readFile(resolve(directory, span.file_name), 'utf8').catch(() => '')).split('\n');
    const at = { line: span.line_start, column: span.column_start };
    const text = span.label ? `${message}: ${span.label}` : message;
    diagnostics.push({ file: normalize(span.file_name), ...at, text, source: lines[at.line - 1] ?? '' });
  }
  const [first] = diagnostics;
  if (first) {
    const moreText = placed.length > 1 ? ` (and ${placed.length - 1} more)` : '';
    return new BuildError(
      'build-failed',
      `The source does not compile: ${first.file}:${first.line}:${first.column}: ${first.text}${moreText}`,
      /unresolved import|can't find crate|undeclared crate/.test(first.text)
        ? 'A source can use only the standard library and the crate pie; put other code into modules beside the source.'
        : 'Correct the source at that place and deploy again.',
      diagnostics,
    );
  }
  const [firstMessage] = messages;
  return new BuildError(
    'build-failed',
    `rustc failed: ${(firstMessage?.message ?? errors.trim()).slice(-1000) || 'it printed no message'}`,
    'Correct the source and deploy again.',
  );
}

/** The span in the source. For a span inside a macro, this is the macro's call. */
const sourceSpan = (span: Span | undefined): Span | undefined =>
  span?.expansion ? sourceSpan(span.expansion.span) : span;

function parsed(line: string): Message[] {
  try {
    const message = JSON.parse(line) as Partial<Message>;
    const { level, spans } = message;
    return level === 'error' && Array.isArray(spans) && typeof message.message === 'string' ? [message as Message] : [];
  } catch {
    return [];
  }
}

function refuseWithoutRun(module: Uint8Array): void {
  const exported = WebAssembly.Module.exports(new WebAssembly.Module(module as Uint8Array<ArrayBuffer>));
  if (exported.some(({ name }) => name === 'run')) return;
  throw new BuildError(
    'build-failed',
    'The source has no program.',
    'Name its function: fn run(input: pie::Json) -> Result<pie::Json, String> { … } and pie::inferlet!(run);',
  );
}
