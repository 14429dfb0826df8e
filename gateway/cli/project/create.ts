import { mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT } from '#infra/install.ts';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { Failure } from '../failure.ts';
import { type Tarballs, vendor } from './vendor.ts';

const TEMPLATES_FOLDER = fileURLToPath(new URL('../templates/', import.meta.url));

/** Description of each template, the default first. */
export const TEMPLATES: Readonly<Record<string, string>> = {
  completion: 'continues a text',
  chat: 'answers each message of a conversation',
  agent: 'answers a question with tools over HTTP',
};

/** Address of the schema of pie.json, for editors. */
const SCHEMA = './node_modules/pie/pie.schema.json';

/**
 * Makes a project in a new or empty folder and returns the paths of its files. When it fails, it removes what it wrote. Throws {@link Failure}, or
 * the reason of the signal.
 *
 * @param name name of the function and of the package
 */
export async function createProject(
  folder: string,
  name: string,
  template: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  assertName(name);
  const existingEntry = statSync(folder, { throwIfNoEntry: false });
  const advice = 'Name another project, or remove it.';
  if (existingEntry?.isDirectory() === false)
    throw new Failure(`${folder} already exists and is not a folder.`, { advice });
  if (existingEntry && readdirSync(folder).length > 0) {
    throw new Failure(`${folder} already exists and is not empty.`, { advice });
  }
  const writtenFiles: string[] = [];
  const folders = new Set<string>();
  try {
    const tarballs = await vendor(path.join(folder, VENDOR), signal);
    const files = { ...templateFiles(name, template), ...sharedFiles(name, TEMPLATES[template] ?? '', tarballs) };
    for (const [file, text] of Object.entries(files)) {
      const at = path.join(folder, file);
      if (path.dirname(file) !== '.') folders.add(path.dirname(file));
      mkdirSync(path.dirname(at), { recursive: true });
      // `wx` fails when another program has made the file meanwhile.
      writeFileSync(at, '', { flag: 'wx' });
      writtenFiles.push(file);
      writeFileSync(at, text);
    }
    return [...Object.keys(files), ...Object.values(tarballs).map((file) => `${VENDOR}/${file}`)].sort();
  } catch (error) {
    for (const each of [VENDOR, ...writtenFiles]) rmSync(path.join(folder, each), { recursive: true, force: true });
    for (const at of folders) removeIfEmpty(path.join(folder, at));
    if (!existingEntry) removeIfEmpty(folder);
    throw error;
  }
}

/** Leaves a folder into which other programs have put files, and accepts one that they have removed. */
function removeIfEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

function assertName(name: string): void {
  if (FUNCTION_NAME.test(name)) return;
  throw new Failure(`"${name}" is not a valid function name.`, {
    why: 'It must begin with a lower-case letter and hold lower-case letters, digits and "-", 63 at most.',
    advice: 'Choose one such as my-function.',
  });
}

function templateFiles(name: string, template: string): Readonly<Record<string, string>> {
  const folder = path.join(TEMPLATES_FOLDER, template);
  const read = (file: string) => readFileSync(path.join(folder, file), 'utf8').replaceAll('{{name}}', name);
  return {
    'README.md': read('README.md'),
    'src/index.ts': read('src/index.ts'),
    [`test/${name}.test.ts`]: read('test.ts.txt'),
    'pie.json': json({ $schema: SCHEMA, ...JSON.parse(read('pie.json')), name }),
  };
}

/** Folder of the project that holds the tarballs of Pie and its library. package.json refers to them. */
const VENDOR = 'vendor';

/** Files of every project, by path. */
function sharedFiles(name: string, description: string, tarballs: Tarballs): Readonly<Record<string, string>> {
  return {
    'package.json': json(packageJson(name, description, tarballs)),
    'tsconfig.json': json(TSCONFIG),
    '.gitignore': 'node_modules/\n*.wasm\n',
    '.npmrc': NPMRC,
  };
}

const TSCONFIG = {
  compilerOptions: {
    target: 'es2024',
    module: 'nodenext',
    lib: ['es2024', 'esnext.disposable'],
    types: ['node'],
    strict: true,
    noEmit: true,
    erasableSyntaxOnly: true,
    verbatimModuleSyntax: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
  },
  include: ['src', 'test'],
};

/** The install script of onnxruntime-node downloads CUDA libraries, which Pie does not use, and fails where they are unavailable. */
const NPMRC = `# Pie needs no install scripts, and the one of onnxruntime-node downloads libraries that Pie does not use.
# Remove this line if a package of yours needs its own.
ignore-scripts=true
`;

function packageJson(name: string, description: string, tarballs: Tarballs): object {
  const versions = developmentVersions();
  return {
    name,
    version: '0.1.0',
    private: true,
    description,
    type: 'module',
    scripts: { test: 'node --test', check: 'tsc', dev: 'pie dev', deploy: 'pie deploy' },
    dependencies: { '@pie/inferlet': `file:${VENDOR}/${tarballs['@pie/inferlet']}` },
    devDependencies: {
      ...(versions['@types/node'] && { '@types/node': versions['@types/node'] }),
      pie: `file:${VENDOR}/${tarballs.pie}`,
      ...(versions.typescript && { typescript: versions.typescript }),
    },
  };
}

/** Versions of Pie's development packages: `devDependencies` in a clone, recorded as `developedWith` in an installed Pie. */
function developmentVersions(): Readonly<Record<string, string>> {
  const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown>;
  return (manifest.devDependencies ?? manifest.developedWith ?? {}) as Record<string, string>;
}

/** Text of a JSON file. */
const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
