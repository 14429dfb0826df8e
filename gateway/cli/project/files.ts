import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '#infra/install.ts';
import type { Tarballs } from './vendor.ts';

/** Folder of the project that holds the tarballs of Pie and its library. package.json refers to them. */
export const VENDOR = 'vendor';

/** Files of every project, by path. */
export function sharedFiles(name: string, description: string, tarballs: Tarballs): Readonly<Record<string, string>> {
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
export const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
