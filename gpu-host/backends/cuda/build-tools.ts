import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** A compiler for the card, or for the emulation on this machine's CPU. */
export interface Compiler {
  readonly program: string;
  /** The program's own version text; part of each object's hash. */
  readonly version: string;
  readonly compile: readonly string[];
  /** Arguments for sources without card code; the compiler then reads them once instead of twice. */
  readonly compileHost: readonly string[];
  /**
   * Arguments that halve the compile time of tests without card code of their own. If absent, tests compile like other sources. The linker
   * takes the product's objects first, so inline functions of headers keep the product's optimisation.
   */
  readonly compileTest?: readonly string[];
  /** True if sources may share a header that is compiled once, as GCC does it. */
  readonly precompiles?: boolean;
  /** Arguments that keep the path of a clone out of the objects, because all clones share them. */
  readonly withoutRoot: (root: string) => readonly string[];
  /** Arguments that link a program. */
  readonly link: readonly string[];
  /** Arguments that link a library that Node loads. */
  readonly linkShared: readonly string[];
}

/** A compiler is missing or too old. The message tells the user how to get one. */
export class MissingCompilerError extends Error {
  override readonly name = 'MissingCompilerError';
}

const OLDEST_CUDA = 12;
export const DEFAULT_ARCH = 'sm_90a';

/** Path of nvcc: on PATH, under CUDA_HOME or CUDA_PATH, or in the folder of NVIDIA's packages. */
export function findNvcc(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const homes = [env.CUDA_HOME, env.CUDA_PATH].filter((home) => home !== undefined && home !== '');
  const folders = [...(env.PATH ?? '').split(path.delimiter), ...homes.map((home) => path.join(`${home}`, 'bin'))];
  return [...folders, '/usr/local/cuda/bin']
    .map((folder) => path.join(folder, 'nvcc'))
    .find((file) => existsSync(file));
}

/** Architectures that a build may be for, with a card of each. */
export const ARCHITECTURES: Readonly<Record<string, string>> = {
  sm_80: 'A100',
  sm_86: 'A10, RTX 30',
  sm_89: 'L4, L40, RTX 40',
  sm_90a: 'H100, H200',
  sm_100: 'B200',
  sm_120: 'RTX 50',
};

/** 10 × major + minor of an architecture's compute capability. */
function capabilityOf(arch: string): number {
  if (Object.hasOwn(ARCHITECTURES, arch)) return Number.parseInt(arch.slice('sm_'.length), 10);
  const descriptions = Object.entries(ARCHITECTURES).map(([name, cards]) => `${name} (${cards})`);
  throw new MissingCompilerError(
    `"${arch}" is not an architecture of this backend. These are: ${descriptions.join(', ')}.`,
  );
}

/**
 * @param arch one of {@link ARCHITECTURES}
 * @param checkOnly true to find errors and warnings only: nvcc does not optimise card code, and makes no object of the host code in the same
 * source
 */
export function cardCompiler(arch: string, checkOnly = false): Compiler {
  const program = findNvcc();
  if (program === undefined) throw new MissingCompilerError(HOW_TO_GET_NVCC);
  const version = outputOf(program, ['--version']);
  const release = /release (\d+)\.(\d+)/.exec(version);
  if (release === null) throw new MissingCompilerError(`${program} does not run: ${version || 'it prints nothing'}`);
  if (Number(release[1]) < OLDEST_CUDA) {
    throw new MissingCompilerError(
      `${program} is CUDA ${release[1]}.${release[2]}; ${OLDEST_CUDA} or newer is needed.`,
    );
  }
  const target = `-gencode=arch=${arch.replace('sm_', 'compute_')},code=${arch}`;
  const capability = `-DPIE_CAPABILITY=${capabilityOf(arch)}`;
  // The level applies to host code; nvcc optimises card code fully.
  const common = ['-O2', '-std=c++17', capability, '-Xcompiler', '-fPIC,-Wall,-Wno-stringop-overflow'];
  return {
    program,
    version,
    compile: ['-x', 'cu', target, ...(checkOnly ? ['-cubin', '-Xcicc', '-O0', '-Xptxas', '-O0'] : []), ...common],
    compileHost: ['-x', 'c++', '-DPIE_CUDA', ...common],
    withoutRoot: () => [],
    link: [target, '-cudart', 'static', '-ldl', '-lpthread'],
    linkShared: [target, '-shared', '-cudart', 'static', '-ldl', '-lpthread'],
  };
}

const HOW_TO_GET_NVCC = `nvcc, the compiler of the CUDA toolkit, was not found on PATH, under CUDA_HOME or in /usr/local/cuda.
Install the toolkit (${OLDEST_CUDA} or newer; only the compiler and the runtime's headers are needed) from
https://developer.nvidia.com/cuda-downloads, or with the system's package manager ("apt-get install cuda-nvcc-13-0 cuda-cudart-dev-13-0"
from NVIDIA's repository), then try again. CUDA_HOME names a toolkit elsewhere.`;

/**
 * CXX, g++ or clang++: the first that builds and runs a program. With `sanitize`, every wrong address ends the run, and runs are slow. `arch`
 * names the emulated card.
 */
export function emulationCompiler(
  sanitize = false,
  arch = DEFAULT_ARCH,
  env: NodeJS.ProcessEnv = process.env,
): Compiler {
  const capability = `-DPIE_CAPABILITY=${capabilityOf(arch)}`;
  const namedCompilers = env.CXX === undefined || env.CXX === '' ? [] : [env.CXX];
  for (const program of [...namedCompilers, 'g++', 'clang++']) {
    const version = outputOf(program, ['--version']);
    if (version === '') continue;
    // A card refuses misaligned addresses. Where the sanitizer's library is installed, they end an emulated run, too.
    for (const checks of sanitize ? [SANITIZED] : [['-fsanitize=alignment', '-fno-sanitize-recover=all'], []]) {
      if (!builds(program, checks)) continue;
      const isMac = process.platform === 'darwin';
      const warnings = ['-Wall', '-Wextra', '-Wno-unknown-pragmas', '-Wno-pass-failed'];
      const common = ['-x', 'c++', '-std=c++17', '-fPIC', '-pthread', capability, ...warnings];
      const compileHost = [...common, '-O1'];
      return {
        program,
        version,
        compile: [...compileHost, ...checks],
        compileHost: sanitize ? [...compileHost, ...checks] : compileHost,
        ...(!sanitize && { compileTest: [...common, '-Og'] }),
        precompiles: version.includes('Free Software Foundation'),
        withoutRoot: (root) => [`-ffile-prefix-map=${root}${path.sep}=`],
        link: ['-pthread', ...(isMac ? [] : ['-ldl']), ...checks],
        linkShared: ['-shared', '-pthread', ...(isMac ? ['-undefined', 'dynamic_lookup'] : ['-ldl']), ...checks],
      };
    }
  }
  throw new MissingCompilerError(
    'g++ or clang++, which compiles the CUDA emulation of the tests, was not found. Install one ("apt-get install g++").',
  );
}

const SANITIZED = ['-fsanitize=address,undefined', '-fno-sanitize-recover=all', '-fno-omit-frame-pointer', '-g1'];

/** A program's output when it succeeds; empty when it cannot run. */
function outputOf(program: string, args: readonly string[]): string {
  const run = spawnSync(program, args, { encoding: 'utf8' });
  return run.status === 0 ? run.stdout : '';
}

function builds(program: string, checks: readonly string[]): boolean {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-compiler-'));
  try {
    const source = path.join(folder, 'probe.cc');
    writeFileSync(source, '#include <vector>\nint main() { return static_cast<int>(std::vector<int>().size()); }\n');
    const out = path.join(folder, 'probe');
    const compiled = spawnSync(program, ['-std=c++17', ...checks, source, '-o', out], { stdio: 'ignore' });
    return compiled.status === 0 && spawnSync(out, { stdio: 'ignore' }).status === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
