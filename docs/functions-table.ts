/**
 * Writes the table of functions/README.md: `npm run functions:table`. The table shows each inferlet's lines of code and the size of what
 * `pie build` makes of it, beside the numbers of the Rust inferlet with the same technique (Gim et al., "Pie: A Programmable Serving System for Emerging LLM Applications",
 * SOSP '25, Table 2).
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const FOLDER = fileURLToPath(new URL('../functions', import.meta.url));
const README = path.join(FOLDER, 'README.md');
const BUILD = path.join(FOLDER, '../runtime/build/main.ts');

const BEGIN = '<!-- table: npm run functions:table -->';
const END = '<!-- /table -->';

/** Lines of code and component size of the paper's inferlets. The key is the folder here that has an inferlet with the same technique. */
const IN_RUST: Readonly<Record<string, readonly [lines: number, size: string]>> = {
  'text-completion': [38, '129 KB'],
  'tree-of-thought': [198, '148 KB'],
  'recursion-of-thought': [106, '152 KB'],
  'graph-of-thought': [87, '171 KB'],
  'skeleton-of-thought': [82, '173 KB'],
  'prefix-caching': [45, '131 KB'],
  'modular-caching': [72, '139 KB'],
  'ebnf-decoding': [225, '2 MB'],
  'beam-search': [98, '142 KB'],
  watermarking: [43, '130 KB'],
  'speculative-decoding': [255, '152 KB'],
  'jacobi-decoding': [88, '96 KB'],
  'attention-sink': [60, '133 KB'],
  'windowed-attention': [60, '133 KB'],
  'agent-react': [60, '309 KB'],
  'agent-codeact': [62, '6.7 MB'],
  'agent-swarm': [95, '135 KB'],
};
/** Lines of code of the paper's library for inferlets. */
const LIBRARY_LINES_IN_RUST = 728;

/** One line of the table. */
export interface Row {
  readonly name: string;
  readonly lines: number;
  /** Size of the script or component as the table shows it, such as `129 KB`. */
  readonly size: string;
}

/** Counts lines of code, without blank and comment-only lines. */
export function codeLines(text: string): number {
  let inComment = false;
  let count = 0;
  for (const line of text.split('\n')) {
    // Skip comments until the first code of the line.
    let rest = line.trim();
    while (rest !== '') {
      if (inComment) {
        const end = rest.indexOf('*/');
        if (end < 0) break;
        inComment = false;
        rest = rest.slice(end + 2).trimStart();
      } else if (rest.startsWith('//')) {
        break;
      } else if (rest.startsWith('/*')) {
        inComment = true;
        rest = rest.slice(2);
      } else {
        count += 1;
        break;
      }
    }
  }
  return count;
}

/** Names of the inferlets here: every folder with a manifest. */
export async function inferlets(): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(FOLDER, { withFileTypes: true })) {
    if (entry.isDirectory() && (await readdir(path.join(FOLDER, entry.name))).includes('pie.json'))
      found.push(entry.name);
  }
  return found.sort();
}

/** Lines of code of an inferlet, without its tests. */
export function linesOf(name: string): Promise<number> {
  return codeLinesIn(path.join(FOLDER, name));
}

/** Lines of code of the library, `sdk/src`. */
export const libraryLines = (): Promise<number> => codeLinesIn(path.join(FOLDER, 'sdk/src'));

/** Folders whose files do not count as code of an inferlet. */
const IGNORED_FOLDERS = ['fixtures', 'node_modules', 'testing'];

async function codeLinesIn(folder: string): Promise<number> {
  let lines = 0;
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) {
      if (!IGNORED_FOLDERS.includes(entry.name)) lines += await codeLinesIn(file);
    } else if (/\.(ts|c|h|rs)$/.test(entry.name) && !entry.name.endsWith('.test.ts')) {
      lines += codeLines(await readFile(file, 'utf8'));
    }
  }
  return lines;
}

/** The rows that the README's table has now; the row of the library is the last one. */
export async function writtenRows(): Promise<Row[]> {
  const text = await readFile(README, 'utf8');
  const table = text.slice(text.indexOf(BEGIN), text.indexOf(END));
  return [...table.matchAll(/^\| \[([a-z0-9-]+)\]\([^)]*\) +\| +(\d+) \|([^|]*)\|/gm)].map(
    ([, name = '', lines, size = '']) => ({
      name,
      lines: Number(lines),
      size: size.trim(),
    }),
  );
}

/** Builds an inferlet, a script or a native component, into the folder `scratch` and returns its size in bytes. */
export async function builtBytes(name: string, scratch: string): Promise<number> {
  const out = path.join(scratch, name);
  await promisify(execFile)(process.execPath, [BUILD, 'component', path.join(FOLDER, name), out, '--json']);
  return (await stat(out)).size;
}

/** Where an inferlet is described: a README of its own, or its section of INFERLETS.md. */
async function documentOf(name: string): Promise<string> {
  const hasReadme = (await readdir(path.join(FOLDER, name))).includes('README.md');
  return hasReadme ? `${name}/README.md` : `INFERLETS.md#${name}`;
}

const sizeText = (bytes: number): string =>
  bytes < 1_000_000 ? `${Math.round(bytes / 1000)} KB` : `${(bytes / 1_000_000).toFixed(2)} MB`;

async function main(): Promise<void> {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'pie-table-'));
  try {
    const rows: string[] = [];
    for (const name of await inferlets()) {
      const [lines = '', size = ''] = IN_RUST[name] ?? [];
      rows.push(
        `| [${name}](${await documentOf(name)}) | ${await linesOf(name)} | ${sizeText(await builtBytes(name, scratch))} | ${lines} | ${size} |`,
      );
    }
    const table = [
      BEGIN,
      '',
      '| Inferlet | Lines | Built | Lines in Rust | Component |',
      '| --- | ---: | ---: | ---: | ---: |',
      ...rows,
      `| [sdk](sdk) | ${await libraryLines()} | | ${LIBRARY_LINES_IN_RUST} | |`,
      '',
      END,
    ].join('\n');
    const text = await readFile(README, 'utf8');
    const [head = '', rest = ''] = text.split(BEGIN);
    const tail = rest.split(END)[1] ?? '\n';
    await writeFile(README, `${head.trimEnd()}\n\n${table}${tail}`);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

if (import.meta.main) await main();
