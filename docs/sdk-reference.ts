import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** The document that `renderReference` makes. It is committed: README.md and the guides link to it, and people read it in the repository. */
export const REFERENCE_FILE = path.join(ROOT, 'docs/sdk-reference.md');

const INTRODUCTION = `<!-- Generated from functions/sdk/src by \`npm run generate\`. Do not edit: a test compares this file with its source. -->
# API reference of @pie/inferlet

Every name that the guest library exports, by entry point and module. [The guide](../functions/sdk/README.md) explains how the parts work together,
and [the recipes](recipes.md) are complete programs.

A failed call throws an \`InferletError\`. The entries name the codes that depend on the call itself; every call may also throw
\`cancelled\`, \`deadline-exceeded\`, \`terminated\`, \`unavailable\` and \`internal\`.
`;

/** The entry points: the name that programs import, the title of its modules, and the file of the compiled types. */
const ENTRIES = [
  { name: '@pie/inferlet', prefix: '', file: 'index.d.ts' },
  { name: '@pie/inferlet/workflow', prefix: 'workflow: ', file: 'workflow/index.d.ts' },
  { name: '@pie/inferlet/raw', prefix: 'raw: ', file: 'raw.d.ts' },
] as const;

/** A statement of a declaration file, or a member of a class, an interface or an object. */
interface Declaration {
  readonly comment: string;
  /** The code with its lines joined, from the name on. */
  readonly code: string;
  readonly members: readonly Declaration[];
}

/** A name that an entry point exports. */
interface Export {
  readonly name: string;
  /** The declaration file of the module that declares the name. */
  readonly file: string;
}

/** Renders the API reference as Markdown, from the types and comments that the package contains. */
export function renderReference(): string {
  const types = mkdtempSync(path.join(os.tmpdir(), 'pie-types-'));
  try {
    const project = ['-p', path.join(ROOT, 'functions/sdk/pack/tsconfig.json')];
    const compiler = [path.join(ROOT, 'node_modules/typescript/bin/tsc'), ...project];
    execFileSync(process.execPath, [...compiler, '--emitDeclarationOnly', '--outDir', types], { stdio: 'inherit' });
    const sections: { readonly title: string; readonly file: string; readonly text: string }[] = [];
    const rows = ENTRIES.map((entry) => {
      const modules = Map.groupBy(exportsOf(types, entry.file), ({ file }) => file);
      const links = [...modules].map(([file, names]) => {
        const title = file === entry.file ? entry.name : `${entry.prefix}${path.basename(file, '.d.ts')}`;
        // If an earlier entry point exports names of the same module, the module has its section already.
        const section = sections.find((other) => other.file === file) ?? {
          title,
          file,
          text: moduleText(types, file, names),
        };
        if (!sections.includes(section)) sections.push(section);
        return `[${section.title}](#${anchorOf(section.title)})`;
      });
      return `| \`${entry.name}\` | ${links.join(', ')} |\n`;
    });
    const index = `| Entry point | Modules |\n| --- | --- |\n${rows.join('')}`;
    return [INTRODUCTION, index, ...sections.map(({ title, text }) => `## ${title}\n\n${text}`)].join('\n');
  } finally {
    rmSync(types, { recursive: true });
  }
}

const anchorOf = (title: string): string =>
  title
    .replaceAll(/[^\w -]/g, '')
    .replaceAll(' ', '-')
    .toLowerCase();

/** The names that a declaration file exports, each with the file that declares it. `types` is the folder of the declaration files. */
function exportsOf(types: string, file: string): Export[] {
  const text = readFileSync(path.join(types, file), 'utf8');
  const found = declarationsOf(text)
    .filter(({ code }) => isDeclared(code))
    .map(({ code }) => ({ name: nameOf(code), file }));
  for (const [, list = '', from = ''] of text.matchAll(/^export (?:type )?\{(.*?)\}(?: from '(.+?)')?;$/gms)) {
    for (const name of list.replaceAll(/\btype /g, '').split(',')) {
      if (name.trim() !== '') found.push({ name: name.trim(), file: declaringFile(types, file, from, name.trim()) });
    }
  }
  return found.filter(({ name }, at) => found.findIndex((other) => other.name === name) === at);
}

/** Finds the file that declares a name which `file` exports from another module. That module may itself export the name from a third one. */
function declaringFile(types: string, file: string, from: string, name: string): string {
  // Names without a relative module are interfaces of the contract. They have no declaration file here and count as names of `file`.
  if (!from.startsWith('.')) return file;
  const target = path.join(path.dirname(file), from.replace(/\.(?:js|ts)$/, '.d.ts'));
  return exportsOf(types, target).find((other) => other.name === name)?.file ?? target;
}

function moduleText(types: string, file: string, names: readonly Export[]): string {
  const declarations = declarationsOf(readFileSync(path.join(types, file), 'utf8'));
  const fromContract: string[] = [];
  const entries = names.flatMap(({ name }) => {
    // Overloads of a function are several declarations of one name.
    const overloads = declarations.filter(({ code }) => isDeclared(code) && nameOf(code) === name);
    // The library imports interfaces and types of the contract under names such as `wireAdapter`.
    const isOfContract = overloads.length === 0 || overloads.some(({ code }) => /\bwire[A-Z]/i.test(code));
    if (!isOfContract) return overloads.map((each) => entryText(each));
    fromContract.push(`\`${name}\``);
    return [];
  });
  if (fromContract.length === 0) return entries.join('');
  const list = `From the contract, as [wit/REFERENCE.md](../wit/REFERENCE.md) describes it: ${fromContract.join(', ')}.`;
  return `${list}\n${entries.length > 0 ? `\n${entries.join('')}` : ''}`;
}

function entryText({ comment, code, members }: Declaration, indent = ''): string {
  const words = comment === '' ? '' : ` ${comment}`;
  const own = `${indent}- \`${signature(code)}\`${words}\n`;
  const visible = members.filter((member) => !/^(?:private|protected|#|\[Symbol|static \{)/.test(member.code));
  return own + visible.map((member) => entryText(member, `${indent}  `)).join('');
}

/** The signature of a declaration, without the keywords that every declaration has. */
function signature(code: string): string {
  const short = code
    .replace(/^(?:export )?(?:declare )?/, '')
    .replace(/^(?:readonly|function|const) /, '')
    .replaceAll(/(?<=[{;] )readonly /g, '')
    .replace(/;$/, '');
  // A constant with an arrow function is called like a function.
  const arrow = /^([\w.]+\??): ((?:<.+?>)?)\(/.exec(short);
  if (arrow === null) return short;
  const [, name = '', generics = ''] = arrow;
  const open = arrow[0].length - 1;
  const close = endOfBrackets(short, open);
  return short.startsWith(' => ', close)
    ? `${name}${generics}${short.slice(open, close)}: ${short.slice(close + 4)}`
    : short;
}

/** The index after the bracket that closes the bracket at index `open`. */
function endOfBrackets(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    if ('({['.includes(text.charAt(at))) depth++;
    if (')}]'.includes(text.charAt(at)) && --depth === 0) return at + 1;
  }
  return text.length;
}

const isDeclared = (code: string): boolean => /^export (?!\{|\*|type \{)/.test(code);

const nameOf = (code: string): string =>
  /^export (?:declare )?(?:abstract )?(?:function|const|let|class|interface|type) (\w+)/.exec(code)?.[1] ?? '';

/** Parses the statements of a declaration file in the format of the compiler, which indents each level by four spaces. */
function declarationsOf(text: string): Declaration[] {
  const found: Declaration[] = [];
  const lines = text.split('\n');
  let comment: string[] = [];
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? '';
    if (line.startsWith('/**')) {
      const end = lines.findIndex((other, i) => i >= at && other.includes('*/'));
      comment = lines.slice(at, end + 1);
      at = end;
    } else if (/^[\w#[(]/.test(line)) {
      // The last line of a statement is not indented and ends with `;`, or is its closing brace. A line that opens a block is not the last one.
      const end = lines.findIndex((other, i) => i >= at && /^\S.*;$|^\}/.test(other) && !/^\S.*\{$/.test(other));
      const body = lines.slice(at, end + 1);
      at = end;
      found.push(declarationOf(comment, body));
      comment = [];
    }
  }
  return found;
}

function declarationOf(comment: readonly string[], lines: readonly string[]): Declaration {
  const [first = ''] = lines;
  // Classes, interfaces and constant objects have members, each listed by itself. A type inside another signature is a part of that signature.
  const hasMembers = /^(?:export )?(?:declare )?(?:abstract )?(?:(?:class|interface) .*|const \w+:) \{$/.test(first);
  if (!hasMembers) {
    const code = lines.map((line) => line.trim()).filter((line) => !line.startsWith('/**'));
    return { comment: plain(comment), code: code.join(' '), members: [] };
  }
  const code = first.replace(/:? \{$/, '');
  const body = lines.slice(1, -1).map((line) => line.replace(/^ {4}/, ''));
  return { comment: plain(comment), code, members: declarationsOf(body.join('\n')) };
}

/** A comment as one paragraph of Markdown, without its examples: the recipes have examples that a test runs. */
function plain(comment: readonly string[]): string {
  const text = comment
    .map((line) => line.replace(/^\s*\/\*\*|\s*\*\/$/g, '').replace(/^\s*\* ?/, ''))
    .join('\n')
    .replace(/@example\b[\s\S]*?(?=\n@(?!example)\w|$)/, '')
    .replaceAll(/@internal ?/g, '')
    .replaceAll(/\s*@param (\S+)\s+/g, '. Parameter `$1`: ')
    .replaceAll(/\s*@returns\s+/g, '. Returns ')
    .replaceAll(/\s*@throws\s+/g, '. Throws ')
    .replaceAll(/\{@link (\S+?)\}/g, '`$1`')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/([.:!?])\. (?=Parameter|Returns|Throws)/g, '$1 ')
    .replace(/^\. /, '')
    .trim();
  // Outside of code, an angle bracket would begin an HTML element.
  const safe = text.replaceAll(/`[^`]*`|</g, (part) => (part === '<' ? '&lt;' : part));
  return /[.!?:]\)?$/.test(safe) || safe === '' ? safe : `${safe}.`;
}
