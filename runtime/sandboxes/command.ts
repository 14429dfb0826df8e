import { fileURLToPath } from 'node:url';
import { SESSION_NICE } from './core-weight.ts';
import { type Layers, OWN_SESSION } from './layers.ts';

/** A program of the platform that gets untrusted bytes, and the files that it may touch. */
export interface ConfinedProgram {
  /** Main module, as an absolute path. */
  readonly main: string;
  readonly args: readonly string[];
  /** Files and folders that contain its code or its inputs. */
  readonly read: readonly string[];
  /** Folders that the program may write and read. */
  readonly write?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** True when the program starts worker threads, which get the same permissions. */
  readonly workers?: boolean;
  /** True when the program needs native addons and child processes, as bundlers and compilers do. */
  readonly tools?: boolean;
  /** True when the program runs once: V8 then compiles only the WebAssembly functions that run, and does not optimise them. */
  readonly once?: boolean;
}

/** Limits that the kernel and V8 enforce even if this process dies. */
export interface KernelLimits {
  /** CPU time of all threads; unlimited when absent. */
  readonly cpuSeconds?: number;
  /** Memory that the program may touch. */
  readonly memoryMb: number;
  /** Directory of the control group that the process enters first. */
  readonly group?: string | undefined;
  /**
   * Makes the process yield its cores to the processes that serve invocations: always, or until its session gets another weight. The caller
   * starts the process in its own session and weighs its control group, if any.
   */
  readonly background?: 'always' | 'at first' | undefined;
}

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Runs in each confined program, each of its threads and each confined thread of this process before the program's code. */
export const CONFINE_URL = new URL('confine.js', import.meta.url);
export const CONFINE = fileURLToPath(CONFINE_URL);
/** SQLite opens files, and FFI opens libraries, without asking the permission model. */
export const CLOSED_MODULES = ['--no-experimental-sqlite', '--no-experimental-ffi'];

/** Writable memory that Node reserves and does not touch (573 MB idle on Linux, Node 26), with room for four worker threads. */
const RESERVED_MB = 1024;
const MAX_OPEN_FILES = 1024;
/** Environment variable that names the folder of compiled code to Node. */
export const NODE_COMPILE_CACHE = 'NODE_COMPILE_CACHE';
/**
 * Work after which V8 optimises a WebAssembly function, roughly in bytes of executed code; V8's default is 13,000,000. The functions of a guest's
 * engine run in many short invocations: with the default, most of these functions were not optimised after 1,300 invocations.
 */
const TIERING_BUDGET = 500_000;

const LIBRARIES = ['/lib', '/lib64', '/usr/lib', '/usr/lib64', '/etc/ld.so.cache', '/nix/store'];

/** Returns the command line that runs a program under these layers. Pure. */
export function confinedCommand(layers: Layers, program: ConfinedProgram, limits: KernelLimits): Command {
  const { main, args } = program;
  const hasNamespaces = layers.isolation === 'namespaces';
  const cache = hasNamespaces && layers.codeCache !== undefined ? [layers.codeCache] : [];
  const environment = { ...program.environment, ...(cache[0] && { [NODE_COMPILE_CACHE]: cache[0] }) };
  const node = [process.execPath, ...nodeFlags(program, limits, cache), main, ...args];
  // `--new-session` would leave the session whose nice value the shell sets below.
  const wrapperOptions = limits.background ? layers.wrapper.filter((option) => option !== OWN_SESSION) : layers.wrapper;
  const wrapper = hasNamespaces
    ? [...wrapperOptions, ...mounts(program, cache), ...variables(environment), '--']
    : wrapperOptions;
  return {
    program: '/bin/sh',
    args: ['-c', limitsScript(limits), ...wrapper, ...node],
    // bubblewrap clears its environment and sets the program's variables by options.
    env: hasNamespaces ? {} : environment,
  };
}

/** A shell sets the limits (`-d` only where supported) and execs the program. SIGXCPU comes at the soft CPU limit, SIGKILL 1 s later. */
function limitsScript({ cpuSeconds, memoryMb, group, background }: KernelLimits): string {
  const dataKiB = (memoryMb + RESERVED_MB) * 1024;
  const cpu = cpuSeconds === undefined ? '' : `ulimit -S -t ${cpuSeconds}; ulimit -H -t ${cpuSeconds + 1};`;
  // Writing 0 moves the shell itself. If entering the group fails, the other limits still apply.
  const enter = group === undefined ? '' : `{ echo 0 > ${quoted(`${group}/cgroup.procs`)}; } 2>/dev/null;`;
  // Where the kernel groups sessions (sched(7), the autogroup feature), the nice value of the session counts; elsewhere, that of the process.
  const yields = background ? `{ echo ${SESSION_NICE.background} > /proc/self/autogroup; } 2>/dev/null;` : '';
  // Only for `always`: an unprivileged process could not lower its nice again to leave the background.
  const become = background === 'always' ? `exec nice -n ${SESSION_NICE.background}` : 'exec';
  return `${enter} ${yields} ulimit -c 0; ${cpu} ulimit -n ${MAX_OPEN_FILES}; ulimit -d ${dataKiB} 2>/dev/null; unset PWD OLDPWD; ${become} "$0" "$@"`;
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function nodeFlags(program: ConfinedProgram, { memoryMb }: KernelLimits, cache: readonly string[]): string[] {
  const { read, write = [], workers, tools } = program;
  return [
    '--permission',
    ...outermost([CONFINE, program.main, ...read, ...write, ...cache]).map((path) => `--allow-fs-read=${path}`),
    // Node uses a code cache only with the permission to write it. The mount is read-only all the same.
    ...outermost([...write, ...cache]).map((path) => `--allow-fs-write=${path}`),
    ...(workers ? ['--allow-worker'] : []),
    ...(tools ? ['--allow-addons', '--allow-child-process'] : []),
    ...compileFlags(program),
    '--disable-warning=SecurityWarning',
    ...CLOSED_MODULES,
    '--disable-sigusr1',
    '--disable-warning=ExperimentalWarning',
    `--max-old-space-size=${Math.max(64, Math.floor(memoryMb / 2))}`,
    `--import=${CONFINE_URL.href}`,
  ];
}

/**
 * A program that runs once for half a second: no function pays for being optimised, and helper threads and collections of garbage take more
 * processor time (an evaluation with them 0.65 s, without 0.45 s) than they save.
 */
const ONCE_FLAGS = [
  '--liftoff-only',
  '--wasm-lazy-compilation',
  '--single-threaded',
  '--min-semi-space-size=16',
  '--max-semi-space-size=32',
];

/** Flags of V8 that must be the same when code is compiled and when it is loaded. */
export const compileFlags = ({ once }: ConfinedProgram): readonly string[] => [
  ...(once ? ONCE_FLAGS : [`--wasm-tiering-budget=${TIERING_BUDGET}`]),
  '--disallow-code-generation-from-strings',
];

/** Drops paths inside other paths: Node forgets an allowed folder that comes after a file in it. */
export const outermost = (paths: readonly string[]): string[] =>
  [...new Set(paths)].filter((path) => !paths.some((other) => other !== path && isInside(path, other)));

const isInside = (path: string, folder: string): boolean =>
  path.startsWith(folder.endsWith('/') ? folder : `${folder}/`);

/** Builds an empty root with Node, its libraries and the program's files; read-only except for the program's writable folders. */
function mounts({ main, read, write = [] }: ConfinedProgram, cache: readonly string[]): string[] {
  const bound = [
    ...[...LIBRARIES, ...cache].map((path) => ['--ro-bind-try', path, path]),
    ...[process.execPath, CONFINE, main, ...read].map((path) => ['--ro-bind', path, path]),
    ...write.map((path) => ['--bind', path, path]),
    ['--dev', '/dev'],
    ['--proc', '/proc'],
  ];
  // Mounts a folder before the paths inside it, which are mounted over it.
  const depth = ([, source = '', target = source]: readonly string[]): number =>
    target === '/' ? 0 : target.split('/').length;
  return [
    ...bound.sort((a, b) => depth(a) - depth(b)).flat(),
    '--remount-ro',
    '/dev',
    '--remount-ro',
    '/',
    '--chdir',
    '/',
  ];
}

const variables = (environment: Readonly<Record<string, string>>): string[] =>
  Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value]);
