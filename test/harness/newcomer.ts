import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from './platform.ts';

/** The commands and files that a document shows to a newcomer. */
export interface Steps {
  /** Lines of the document's `sh` blocks in their order, without comments. */
  readonly commands: readonly string[];
  /** The document's `ts` blocks by the file name in their first line, `// name.ts`; without the blocks that have no such line. */
  readonly files: ReadonlyMap<string, string>;
}

/** The code blocks of a document in one language. */
export const codeBlocks = (document: string, language: string): string[] =>
  [...document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);

export function stepsOf(document: string): Steps {
  const text = readFileSync(path.join(ROOT, document), 'utf8');
  const lines = codeBlocks(text, 'sh').flatMap((block) => block.split('\n'));
  const files = codeBlocks(text, 'ts').flatMap((code) => {
    const [, name] = /^\/\/ (\S+\.ts)\n/.exec(code) ?? [];
    return name === undefined ? [] : [[name, code] as const];
  });
  return {
    commands: lines.map((line) => line.replace(/ # .*/, '').trim()).filter((line) => line !== ''),
    files: new Map(files),
  };
}

/** A folder with the newcomer's files and with links to the entries of the checkout, so that the newcomer's commands work in it. */
export class NewcomerFolder implements AsyncDisposable {
  readonly path: string;

  private constructor(folder: string) {
    this.path = folder;
  }

  static async create({ files }: Steps): Promise<NewcomerFolder> {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-newcomer-'));
    const shared = readdirSync(ROOT).filter((name) => !name.startsWith('.') && !files.has(name));
    await Promise.all(shared.map((name) => symlink(path.join(ROOT, name), path.join(folder, name))));
    await Promise.all([...files].map(([name, code]) => writeFile(path.join(folder, name), code)));
    return new NewcomerFolder(folder);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}
