import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../install.ts';
import { packagesOf, ROOMS, staysTypeScript, toJavaScript } from './javascript.ts';

/** Modules that users run or import by name; staging follows their references to all other modules. */
const ENTRIES = ['gateway/cli/bin.js', 'gateway/local/testing.ts'];
/** A package ships the engine of scripts, and needs none of the modules that make it. */
const ENGINE = 'runtime/build/script/engine.wasm';
const ONLY_IN_CLONES: ReadonlySet<string> = new Set([
  'runtime/build/script/engine.ts',
  'runtime/build/component/componentize.ts',
]);
/**
 * Paths of the files in `ROOMS` (the folders of the programs' sources) and `docs` that the package has besides modules.
 * Programs of Pie read these files, or users include them: Lua scripts, WIT, the guides with their pictures, C headers, the
 * Rust crate, and the settings for Grafana. The headers below `gpu-host` are left out: they belong to the CUDA backend,
 * whose addon is built in a clone.
 */
const ASSETS =
  /\.(lua|wit)$|^docs\/.*\.(md|png|svg)$|^(?!gpu-host\/).*\.h$|^wit\/generated\/(pie\.rs|Cargo\.toml)$|^infra\/grafana\/.*\.(json|yaml)$/;
/**
 * Paths of files that are not copied: tests and the files that only tests use, native sources, outputs of builds, and
 * installed packages. A module that the entries reach is packed even if it has such a path.
 */
const LEFT_OUT = /(^|\/)(fixtures|testing|native|dist|node_modules)(\/|$)|\/testing\.ts$|\.test\.ts$/;

interface Manifest {
  readonly version: string;
  readonly description: string;
  readonly license: string;
  readonly engines: Readonly<Record<string, string>>;
  readonly imports: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

/** Lays out the package `pie` in the empty folder `stage`, with the staged `library` inside. Throws when a referenced file is missing. */
export function stagePie(stage: string, library: string): void {
  const root = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as Manifest;
  const packages = new Set([...stageCode(stage), ...stageSources(stage)]);
  const assets = [...ROOMS, 'docs'].flatMap(filesIn).filter((name) => ASSETS.test(name));
  for (const file of [...assets, 'LICENSE', 'README.md']) copy(file, stage);
  cpSync(library, path.join(stage, 'node_modules/@pie/inferlet'), { recursive: true });
  stageTypes(stage);
  const engine = path.join(stage, ENGINE);
  mkdirSync(path.dirname(engine), { recursive: true });
  execFileSync(process.execPath, [path.join(ROOT, 'runtime/build/script/write-engine.ts'), engine], {
    stdio: 'inherit',
  });
  const schema = execFileSync(process.execPath, [path.join(ROOT, 'scheduler/functions/manifest-schema.ts')]);
  writeFileSync(path.join(stage, 'pie.schema.json'), schema);
  writeFileSync(path.join(stage, 'package.json'), `${JSON.stringify(manifestOf(root, packages), null, 2)}\n`);
}

/** Lays out `@pie/inferlet` in an empty folder. */
export function stageLibrary(stage: string): void {
  const sdk = path.join(ROOT, 'functions/sdk');
  execFileSync(process.execPath, [path.join(sdk, 'pack/pack.ts'), path.join(stage, 'dist')], { stdio: 'inherit' });
  for (const file of filesIn('functions/sdk/src')) {
    if (!LEFT_OUT.test(file)) copyTo(file, path.join(stage, path.relative('functions/sdk', file)));
  }
  copyTo('functions/sdk/README.md', path.join(stage, 'README.md'));
  copyTo('LICENSE', path.join(stage, 'LICENSE'));
  const { scripts: _, ...manifest } = JSON.parse(readFileSync(path.join(sdk, 'package.json'), 'utf8'));
  writeFileSync(path.join(stage, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** Writes every module that the entries reach as JavaScript. Returns the npm packages that those modules import. */
function stageCode(stage: string): Set<string> {
  const packages = new Set<string>();
  const reachedFiles = new Set(ENTRIES);
  // The loop body adds to the set that the loop walks.
  for (const file of reachedFiles) {
    if (staysTypeScript(file) || ONLY_IN_CLONES.has(file)) continue;
    if (!existsSync(path.join(ROOT, file))) throw new Error(`A packed module imports ${file}, which does not exist.`);
    const converted = toJavaScript(file, readFileSync(path.join(ROOT, file), 'utf8'));
    for (const name of converted.packages) packages.add(name);
    for (const imported of converted.files) reachedFiles.add(imported);
    write(path.join(stage, file.replace(/\.ts$/, '.js')), converted.text);
  }
  return packages;
}

/** Copies the files that stay TypeScript. Returns the npm packages that those files import. */
function stageSources(stage: string): string[] {
  const files = [...filesIn('functions'), ...filesIn('gateway/cli/templates')];
  return files
    .filter((file) => staysTypeScript(file) && !file.startsWith('functions/sdk/') && !LEFT_OUT.test(file))
    .flatMap((file) => {
      copy(file, stage);
      const isFunctionSource = file.startsWith('functions/') && file.endsWith('.ts');
      return isFunctionSource ? packagesOf(readFileSync(path.join(ROOT, file), 'utf8')) : [];
    });
}

/** Writes the type declarations of the modules that projects import. */
function stageTypes(stage: string): void {
  const typesDirectory = mkdtempSync(path.join(stage, '.types-'));
  const compiler = path.join(ROOT, 'node_modules/typescript/bin/tsc');
  execFileSync(
    process.execPath,
    [compiler, '-p', path.join(ROOT, 'infra/package/tsconfig.json'), '--outDir', typesDirectory],
    {
      stdio: 'inherit',
    },
  );
  const types = readFileSync(path.join(typesDirectory, 'gateway/local/testing.d.ts'), 'utf8');
  if (/\bfrom '[.#]/.test(types)) throw new Error('The types of pie/testing refer to files that are not packed.');
  writeFileSync(path.join(stage, 'gateway/local/testing.d.ts'), types);
  rmSync(typesDirectory, { recursive: true });
}

function manifestOf(root: Manifest, packages: ReadonlySet<string>): object {
  const { 'componentize-qjs': _, ...dependencies }: Record<string, string | undefined> = root.dependencies;
  for (const name of packages) {
    if (name === '@pie/inferlet' || dependencies[name] !== undefined) continue;
    const version = root.devDependencies[name];
    if (version === undefined) throw new Error(`${name} is imported, but package.json does not name it.`);
    dependencies[name] = version;
  }
  const { version, description, license, engines, imports, optionalDependencies, devDependencies } = root;
  return {
    name: 'pie',
    version,
    description,
    license,
    type: 'module',
    engines,
    bin: { pie: './gateway/cli/bin.js' },
    files: [...ROOMS, 'docs', 'functions', 'pie.schema.json'],
    // Only names such as `#gateway/*`, for the folders of `ROOMS`. The package has no folder for `#test/*`.
    imports: Object.fromEntries(Object.entries(imports).filter(([name]) => ROOMS.includes(name.slice(1, -2)))),
    exports: {
      './testing': { types: './gateway/local/testing.d.ts', default: './gateway/local/testing.js' },
      './pie.schema.json': './pie.schema.json',
      './package.json': './package.json',
    },
    developedWith: { '@types/node': devDependencies['@types/node'], typescript: devDependencies.typescript },
    dependencies: { ...dependencies, '@pie/inferlet': version },
    bundleDependencies: ['@pie/inferlet'],
    optionalDependencies,
  };
}

/** Files below a folder, relative to the root. */
function filesIn(folder: string): string[] {
  return readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(ROOT, path.join(entry.parentPath, entry.name)))
    .filter((file) => !LEFT_OUT.test(file))
    .sort();
}

function copy(file: string, stage: string): void {
  copyTo(file, path.join(stage, file));
}

function copyTo(file: string, target: string): void {
  mkdirSync(path.dirname(target), { recursive: true });
  cpSync(path.join(ROOT, file), target);
}

function write(target: string, text: string): void {
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
}
