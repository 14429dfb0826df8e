import { mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { Failure } from '../failure.ts';
import { json, sharedFiles, VENDOR } from './files.ts';
import { vendor } from './vendor.ts';

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
