import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { builtComponent } from '#test/harness/built.ts';
import { ROOT, runProgram } from '#test/harness/platform.ts';
import { noRustc } from '#test/harness/rust.ts';
import { type Example, examplesIn, isInferlet, libraryExports } from './examples.ts';

/** Global declarations of the names that fragments in documents use without declaring them. */
const PLACEHOLDERS = `
declare const ctx: import('@pie/inferlet').Context;
declare const forks: readonly import('@pie/inferlet').Context[];
declare const chapters: readonly string[];
declare function summarize(chapter: string, signal: import('@pie/inferlet').AbortSignalLike): Promise<string>;
interface Input { readonly question: string; readonly passages: readonly string[] }
declare const RULES: string;
declare function nearest(given: { readonly vectors: readonly Float32Array[]; readonly asked: readonly Float32Array[] }): string;
`;

/** Adds the imports of the library that a fragment omits. They go into its first line, so that line numbers stay the same. */
function withImports({ code }: Example, namesOf: ReadonlyMap<string, readonly string[]>): string {
  const imported = new Set(
    [...code.matchAll(/^import \{(.*?)\} from/gms)].flatMap(([, names = '']) => names.match(/\w+/g)),
  );
  const imports = [...namesOf].map(([entry, names]) => {
    const used = names.filter((name) => !imported.has(name) && new RegExp(`\\b${name}\\b`).test(code));
    return `import { ${used.join(', ')} } from '${entry}'; `;
  });
  return imports.join('') + code;
}

test('the TypeScript examples of all documents have correct types', async () => {
  const namesOf = new Map<string, readonly string[]>();
  for (const entry of ['@pie/inferlet', '@pie/inferlet/workflow']) namesOf.set(entry, await libraryExports(entry));
  const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-examples-'));
  try {
    const examples = examplesIn('ts');
    assert.ok(examples.length > 20, `${examples.length} examples`);
    const projects = Object.groupBy(examples, ({ code }) =>
      /from '(?:openai|@ai-sdk\/.*|ai)'/.test(code) ? 'clients' : 'library',
    );
    for (const [name, members] of Object.entries(projects)) {
      const project = path.join(folder, name);
      await mkdir(project);
      await symlink(path.join(ROOT, 'node_modules'), path.join(project, 'node_modules'));
      const isLibrary = name === 'library';
      const config = {
        extends: path.join(ROOT, 'tsconfig.json'),
        // Without the types of Node, an example that forgets to import `fetch` from the library fails.
        compilerOptions: { noUnusedLocals: false, types: isLibrary ? [] : ['node'] },
        include: ['*.ts', ...(isLibrary ? [path.join(ROOT, 'wit/generated/guest.d.ts')] : [])],
      };
      await writeFile(path.join(project, 'tsconfig.json'), JSON.stringify(config));
      await writeFile(path.join(project, 'package.json'), '{"type":"module"}');
      if (isLibrary) await writeFile(path.join(project, 'placeholders.d.ts'), PLACEHOLDERS);
      for (const example of members) {
        const code = isInferlet(example) || !isLibrary ? example.code : withImports(example, namesOf);
        await writeFile(path.join(project, `${example.place.replaceAll('/', '-')}.ts`), code);
      }
      const compiler = path.join(ROOT, 'node_modules/typescript/bin/tsc');
      const { code, stdout, stderr } = await runProgram(process.execPath, [compiler, '--checkers', '1', '-p', '.'], {
        cwd: project,
      });
      assert.ok(code === 0 && stdout === '', stdout + stderr);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('the program of docs/rust.md compiles', { skip: await noRustc() }, async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-examples-'));
  try {
    const programs = examplesIn('rust');
    assert.deepEqual(
      programs.map(({ document }) => document),
      ['docs/rust.md'],
    );
    for (const { code } of programs) {
      const main = path.join(folder, 'main.rs');
      await writeFile(main, code);
      assert.ok((await builtComponent(main)).length > 0);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
