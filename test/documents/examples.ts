import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import * as esbuild from 'esbuild';
import { ROOT } from '#test/harness/platform.ts';

/** A code block of a document. */
export interface Example {
  /** The document and the line of the code's first line: `docs/recipes.md:14`. */
  readonly place: string;
  readonly document: string;
  readonly code: string;
}

/** Documents in a checkout, without those of installed packages. */
export const documents = (): string[] =>
  globSync('**/*.md', { cwd: ROOT, exclude: ['**/node_modules/**', '**/dist/**'] }).toSorted();

/** All code blocks of all documents in one language. */
export function examplesIn(language: string): Example[] {
  return documents().flatMap((document) => {
    const text = readFileSync(path.join(ROOT, document), 'utf8');
    return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(
      ({ 1: code = '', index }) => {
        const line = text.slice(0, index).split('\n').length + 1;
        return { place: `${document}:${line}`, document, code };
      },
    );
  });
}

/** True for an example that is a whole inferlet. */
export const isInferlet = ({ code }: Example): boolean => /^export const run = /m.test(code);

/** Names of values that an entry point of the library exports. */
export async function libraryExports(entry: string): Promise<readonly string[]> {
  const { metafile } = await esbuild.build({
    stdin: { contents: `export * from '${entry}';`, resolveDir: ROOT },
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    conditions: ['pie'],
    external: ['pie:*'],
  });
  const [output] = Object.values(metafile.outputs);
  return output?.exports ?? [];
}
