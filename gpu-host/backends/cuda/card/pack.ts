/** Packs what `run.sh` needs, besides this tree, on a machine with a card but without Node or network. `--help` describes its use. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { ProgramError, readArguments, refuseArguments, runMain } from '#infra/arguments.ts';
import { BuildError, build, MissingCompilerError } from '../build-cache.ts';

const HERE = import.meta.dirname;
const ROOT = resolve(HERE, '../../../..');
const MODULES = join(ROOT, 'node_modules');

/** Packages that the code imports but never uses on the card's machine. Each gets a stand-in that fails when it is used. */
const STAND_INS: Readonly<Record<string, readonly string[]>> = {
  'onnxruntime-node': ['InferenceSession', 'Tensor', 'env'],
  'onnx-proto': [],
  esbuild: ['build', 'transform'],
  'componentize-qjs': ['componentize'],
};
/** Packages that the pack leaves out. `packNode` copies Node itself. */
const LEFT_OUT = ['binaryen', 'oxc-minify', 'node'];
/** Files of packages that only developers read, and programs for other systems. */
const DEAD_WEIGHT =
  /\.(map|md|markdown|d\.ts|d\.mts|d\.cts|ts|mts|cts|flow)$|\/(test|tests|docs|example|examples|benchmark)\/|\/prebuilds\/(?!linux-x64)/;
/** Packages that the tests and the addon's compilation need. */
const TEST_PACKAGES = ['fast-check', 'node-api-headers'];
/** Libraries that every system has. */
const SYSTEM = /^(linux-vdso|ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.)/;

const USAGE = `Usage: node gpu-host/backends/cuda/card/pack.ts OUT [options]

Packs the inputs of run.sh for a machine with a card and without Node or network, as a few compressed files in the folder OUT: programs built
here, and the reference's results. Existing files are kept: delete OUT to create all again. Prints the sizes. Then, on that machine:
bash gpu-host/backends/cuda/card/run.sh RESULTS --pack OUT

  --stories      also the results of stories15M, which is pulled if it is not on this machine
  --platform     also Node, the packages that the platform loads, redis-server and a built inferlet: for the backend's tests and the platform's tax
  --no-programs  leave out the programs, which need nvcc; run.sh compiles them
  --help         print this
`;

await runMain(main, [BuildError, MissingCompilerError]);

async function main(): Promise<void> {
  const { values, positionals } = readArguments(USAGE, {
    allowPositionals: true,
    options: {
      stories: { type: 'boolean', default: false },
      platform: { type: 'boolean', default: false },
      programs: { type: 'boolean', default: true },
    },
    allowNegative: true,
  });
  const [out] = positionals.map((each) => resolve(each));
  if (out === undefined) refuseArguments(USAGE, 'the folder OUT is missing');
  if (positionals.length > 1) refuseArguments(USAGE, `expected one OUT, got ${positionals.join(' and ')}`);
  mkdirSync(out, { recursive: true });
  const scratch = mkdtempSync(join(tmpdir(), 'pie-pack-'));
  try {
    if (values.programs) await packPrograms(out, scratch);
    packFixtures(out, scratch, values.stories);
    if (values.platform) {
      packNode(out, scratch);
      packRedis(out, scratch);
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  let total = 0;
  for (const file of globSync('*', { cwd: out }).sort()) {
    const { size } = statSync(join(out, file));
    total += size;
    process.stdout.write(`${(size / 2 ** 20).toFixed(1).padStart(6)} MiB  ${file}\n`);
  }
  process.stdout.write(`${(total / 2 ** 20).toFixed(1).padStart(6)} MiB  in all\n`);
}

/** Packs the harness, the C++ tests and the addon for a card, and the hash by which `run.sh` knows that they match the sources. */
async function packPrograms(out: string, scratch: string): Promise<void> {
  const sources = execFileSync('bash', [join(HERE, 'run.sh'), '--sources'], { encoding: 'utf8' }).trim();
  const file = join(out, 'sources');
  if (existsSync(file) && readFileSync(file, 'utf8').trim() === sources && existsSync(join(out, 'programs.tar.xz')))
    return;
  const folder = join(scratch, 'programs');
  for (const [target, name] of [
    ['harness', 'cuda-harness'],
    ['tests', 'cuda-tests'],
    ['addon', 'pie-cuda.node'],
  ] as const) {
    say(`building ${name}`);
    const builtFile = await build(target, { emulated: false, out: join(folder, name) });
    execFileSync('strip', [builtFile]);
  }
  compress(folder, join(out, 'programs.tar.xz'));
  writeFileSync(file, `${sources}\n`);
}

function packFixtures(out: string, scratch: string, withStories: boolean): void {
  const file = join(out, 'fixtures.tar.xz');
  if (existsSync(file)) return;
  const folder = join(scratch, 'fixtures');
  say('writing the results of the reference');
  execFileSync(process.execPath, [join(HERE, 'fixtures.ts'), folder, ...(withStories ? ['--stories'] : [])]);
  compress(folder, file);
}

/** Packs `node`, the packages that the platform loads, and the inferlet of `platform-tax.ts`. */
function packNode(out: string, scratch: string): void {
  const file = join(out, 'node.tar.xz');
  if (existsSync(file)) return;
  const folder = join(scratch, 'node');
  mkdirSync(join(folder, 'lib'), { recursive: true });
  say('copying Node and packages');
  // The `pie` command looks for Node in the place where the npm package `node` puts it.
  const node = join(folder, 'node_modules', 'node', 'bin', 'node');
  mkdirSync(dirname(node), { recursive: true });
  copyFileSync(process.execPath, node);
  execFileSync('strip', [node]);
  // libatomic is not on every system, unlike Node's other libraries.
  for (const library of librariesOf(process.execPath))
    if (basename(library).startsWith('libatomic')) copyFileSync(library, join(folder, 'lib', basename(library)));
  for (const packageFolder of packagesNeeded())
    copyPackage(packageFolder, join(folder, 'node_modules', relative(MODULES, packageFolder)));
  for (const [name, exported] of Object.entries(STAND_INS)) standIn(join(folder, 'node_modules', name), exported);
  say('building the inferlet');
  execFileSync(process.execPath, [
    join(ROOT, 'gateway/cli/bin.js'),
    'build',
    join(ROOT, 'test/inferlets/decode.ts'),
    '--out',
    join(folder, 'decode.wasm'),
  ]);
  compress(folder, file);
}

/** Packs this machine's redis-server with its libraries, and a script that starts it with them. */
function packRedis(out: string, scratch: string): void {
  const file = join(out, 'redis.tar.xz');
  if (existsSync(file)) return;
  const program = redisServer();
  const folder = join(scratch, 'redis');
  mkdirSync(join(folder, 'lib'), { recursive: true });
  // The binary chooses its role by its own name, so it must be called redis-server.
  copyFileSync(program, join(folder, 'lib', 'redis-server'));
  for (const library of librariesOf(program)) copyFileSync(library, join(folder, 'lib', basename(library)));
  const script =
    '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\nLD_LIBRARY_PATH=$here/lib exec "$here/lib/redis-server" "$@"\n';
  writeFileSync(join(folder, 'redis-server'), script);
  chmodSync(join(folder, 'redis-server'), 0o755);
  compress(folder, file);
}

function redisServer(): string {
  try {
    return realpathSync(execFileSync('sh', ['-c', 'command -v redis-server'], { encoding: 'utf8' }).trim());
  } catch (cause) {
    const text =
      '--platform packs redis-server, which is not on the PATH. Install it (Debian: `sudo apt-get install redis-server`), or leave --platform out.';
    throw new ProgramError(text, { cause });
  }
}

/** Shared libraries that a program loads, except those that every system has. */
function librariesOf(program: string): string[] {
  return execFileSync('ldd', [program], { encoding: 'utf8' })
    .split('\n')
    .flatMap((line) => / => (\/\S+)/.exec(line)?.[1] ?? [])
    .filter((library) => !SYSTEM.test(basename(library)));
}

/** Folders of all packages that the platform may load: those that package.json names, and their dependencies. */
function packagesNeeded(): string[] {
  const packageFolders = new Set<string>();
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest;
  const pending = [...Object.keys(dependencies ?? {}), ...TEST_PACKAGES].map((name) => ({ name, from: ROOT }));
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { name, from } = next;
    if (name in STAND_INS || LEFT_OUT.includes(name)) continue;
    const packageFolder = findPackage(name, from);
    if (packageFolder === undefined || packageFolders.has(packageFolder)) continue;
    packageFolders.add(packageFolder);
    const manifest = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as Manifest;
    for (const each of Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies }))
      pending.push({ name: each, from: packageFolder });
  }
  return [...packageFolders];
}

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

function findPackage(name: string, from: string): string | undefined {
  for (let folder = from; folder.startsWith(ROOT); folder = dirname(folder)) {
    const packageFolder = join(folder, 'node_modules', name);
    if (existsSync(join(packageFolder, 'package.json'))) return realpathSync(packageFolder);
  }
  return undefined;
}

function copyPackage(from: string, to: string): void {
  cpSync(from, to, {
    recursive: true,
    filter: (file) => {
      const inside = file.slice(from.length);
      return !inside.includes('/node_modules') && !DEAD_WEIGHT.test(inside);
    },
  });
}

/** Writes a stand-in module: loading it allows any access to its exports, and using one throws an error that names the package. */
function standIn(folder: string, exported: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ name: basename(folder), version: '0.0.0', type: 'module', exports: './index.js' }),
  );
  const lines = [
    `const fail = () => { throw new Error(${JSON.stringify(`${basename(folder)} is not in this pack`)}); };`,
    'const thing = new Proxy(function () {}, { get: (_, key) => (key === "then" ? undefined : thing), apply: fail, construct: fail });',
    'export default thing;',
    ...exported.map((name) => `export const ${name} = thing;`),
  ];
  writeFileSync(join(folder, 'index.js'), `${lines.join('\n')}\n`);
}

function compress(folder: string, file: string): void {
  say(`compressing ${basename(file)}`);
  execFileSync('tar', ['--create', '--xz', '--file', `${file}.part`, '--directory', folder, '.'], {
    env: { ...process.env, XZ_OPT: '-9e' },
  });
  renameSync(`${file}.part`, file);
}

function say(text: string): void {
  process.stderr.write(`${text} …\n`);
}
