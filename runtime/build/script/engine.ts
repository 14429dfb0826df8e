import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { world } from '#wit/generated/world.ts';
import { OPTIONS } from '../component/bundle.ts';
import { withEngine } from '../component/componentize.ts';
import { contractText } from '../component/contract.ts';

const PRELUDE = fileURLToPath(new URL('../component/prelude/index.ts', import.meta.url));
const LOADER = fileURLToPath(new URL('loader.ts', import.meta.url));

/** The source of the engine as one module: the prelude, the loader and all interfaces of the contract. The SDK is part of each script instead. */
export async function engineSource(): Promise<string> {
  const names = world.imports
    .filter(({ functions, resources }) => functions.length + resources.length > 0)
    .map(({ id }) => id)
    .sort();
  const contents = [
    `import { wrap } from ${JSON.stringify(PRELUDE)};`,
    `import { loader } from ${JSON.stringify(LOADER)};`,
    ...names.map((name, index) => `import * as m${index} from ${JSON.stringify(name)};`),
    `export const run = loader(wrap, new Map([${names.map((name, index) => `[${JSON.stringify(name)}, m${index}]`).join()}]));`,
  ].join('\n');
  const { outputFiles } = await build({
    ...OPTIONS,
    stdin: {
      contents,
      resolveDir: fileURLToPath(new URL('.', import.meta.url)),
      sourcefile: 'pie:engine',
      loader: 'js',
    },
    external: ['pie:inferlet/*'],
    write: false,
    target: 'es2023',
    charset: 'utf8',
    legalComments: 'none',
    minifyWhitespace: true,
    minifySyntax: true,
  });
  return outputFiles[0]?.text ?? '';
}

/** Builds the engine's component, which takes some 3 s of CPU time. @param directory folder for the compiler's temporary input */
export async function makeEngine(directory: string): Promise<Uint8Array> {
  const scratch = await mkdtemp(join(directory, '.engine-'));
  try {
    const witPath = join(scratch, 'contract.wit');
    await writeFile(witPath, await contractText());
    return await withEngine(witPath, await engineSource());
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
