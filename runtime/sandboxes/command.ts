import { fileURLToPath } from 'node:url';
import { SESSION_NICE } from './core-weight.ts';
import { type Layers, OWN_SESSION } from './layers.ts';

/** A program of ours that untrusted bytes are handed to, and all that it may touch. */
export interface ConfinedProgram {
  /** Its main module, absolute. */
  readonly main: string;
  readonly args: readonly string[];
  /** Files and folders that it is made of, and those that it reads. */
  readonly read: readonly string[];
  /** Folders that it may write; it may read them, too. */
  readonly write?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** It starts worker threads; they are held to the same permissions. */
  readonly workers?: boolean;
  /** It needs native addons and child processes: bundlers and compilers. */
  readonly tools?: boolean;
}

/** Limits that the kernel and V8 keep, whatever becomes of this process. */
export interface KernelLimits {
  /** CPU time of all threads; unlimited without it. */
  readonly cpuSeconds?: number;
  /** Memory that the program may touch. */
  readonly memoryMb: number;
  /** Directory of the control group that it enters before anything else. */
  readonly group?: string | undefined;
  /**
   * It yields its cores to what serves invocations: for good, or until its session is weighed anew. Its starter has given it that session, and moved its
   * group if it has one.
   */
  readonly background?: 'always' | 'at first' | undefined;
}

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Runs before each confined program and each of its threads. */
const CONFINE_URL = new URL('confine.ts', import.meta.url);
const CONFINE = fileURLToPath(CONFINE_URL);

/** Writable memory that Node reserves and does not touch (573 MB idle on Linux, Node 26), with room for four worker threads. */
const RESERVED_MB = 1024;
const MAX_OPEN_FILES = 1024;

/** Where dynamic libraries lie. */
const LIBRARIES = ['/lib', '/lib64', '/usr/lib', '/usr/lib64', '/etc/ld.so.cache', '/nix/store'];

/** The command line that runs a program under these layers. Pure. */
export function confinedCommand(layers: Layers, program: ConfinedProgram, limits: KernelLimits): Command {
  const { main, args, environment = {} } = program;
  const node = [process.execPath, ...nodeFlags(program, limits), main, ...args];
  const inside = layers.isolation === 'namespaces';
  const layer = limits.background ? layers.wrapper.filter((option) => option !== OWN_SESSION) : layers.wrapper;
  const wrapper = inside ? [...layer, ...mounts(program), ...variables(environment), '--'] : layer;
  return {
    program: '/bin/sh',
    args: ['-c', limitsScript(limits), ...wrapper, ...node],
    // bubblewrap clears what it is given and sets the program's own.
    env: inside ? {} : environment,
  };
}

/** A shell sets the limits and becomes the program. At the soft limit of CPU time the kernel says why (SIGXCPU), a second later it kills. What a system does not know (`-d` on some) is left out there. */
function limitsScript({ cpuSeconds, memoryMb, group, background }: KernelLimits): string {
  const dataKiB = (memoryMb + RESERVED_MB) * 1024;
  const cpu = cpuSeconds === undefined ? '' : `ulimit -S -t ${cpuSeconds}; ulimit -H -t ${cpuSeconds + 1};`;
  // 0 is the writer itself. Without the group it runs under the other limits.
  const enter = group === undefined ? '' : `{ echo 0 > ${quoted(`${group}/cgroup.procs`)}; } 2>/dev/null;`;
  // The kernel weighs sessions where it groups them (sched(7), the autogroup feature), elsewhere processes.
  const yields = background ? `{ echo ${SESSION_NICE.background} > /proc/self/autogroup; } 2>/dev/null;` : '';
  // What is no more in the background could not take this back without rights.
  const become = background === 'always' ? `exec nice -n ${SESSION_NICE.background}` : 'exec';
  return `${enter} ${yields} ulimit -c 0; ${cpu} ulimit -n ${MAX_OPEN_FILES}; ulimit -d ${dataKiB} 2>/dev/null; unset PWD OLDPWD; ${become} "$0" "$@"`;
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function nodeFlags(program: ConfinedProgram, { memoryMb }: KernelLimits): string[] {
  const { read, write = [], workers, tools } = program;
  return [
    '--permission',
    ...outermost([CONFINE, program.main, ...read, ...write]).map((path) => `--allow-fs-read=${path}`),
    ...outermost(write).map((path) => `--allow-fs-write=${path}`),
    ...(workers ? ['--allow-worker'] : []),
    ...(tools ? ['--allow-addons', '--allow-child-process'] : []),
    '--disable-warning=SecurityWarning',
    '--disallow-code-generation-from-strings',
    // It opens files without asking the permission model.
    '--no-experimental-sqlite',
    '--no-experimental-ffi',
    '--disable-sigusr1',
    '--disable-warning=ExperimentalWarning',
    `--max-old-space-size=${Math.max(64, Math.floor(memoryMb / 2))}`,
    `--import=${CONFINE_URL.href}`,
  ];
}

/** Paths that lie in none of the others: Node forgets a folder that is allowed after a file in it. */
const outermost = (paths: readonly string[]): string[] =>
  [...new Set(paths)].filter((path) => !paths.some((other) => other !== path && isInside(path, other)));

const isInside = (path: string, folder: string): boolean =>
  path.startsWith(folder.endsWith('/') ? folder : `${folder}/`);

/** An empty root with Node, its libraries, what the program may touch, and nothing else; read-only but for its own folders. */
function mounts({ main, read, write = [] }: ConfinedProgram): string[] {
  const bound = [
    ...LIBRARIES.map((path) => ['--ro-bind-try', path, path]),
    ...[process.execPath, CONFINE, main, ...read].map((path) => ['--ro-bind', path, path]),
    ...write.map((path) => ['--bind', path, path]),
    ['--dev', '/dev'],
    ['--proc', '/proc'],
  ];
  // A folder goes before what lies in it, which is mounted over it.
  const depth = ([, source = '', target = source]: readonly string[]): number =>
    target === '/' ? 0 : target.split('/').length;
  return [
    ...bound.sort((a, b) => depth(a) - depth(b)).flat(),
    ...['--remount-ro', '/dev', '--remount-ro', '/', '--chdir', '/'],
  ];
}

const variables = (environment: Readonly<Record<string, string>>): string[] =>
  Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value]);
