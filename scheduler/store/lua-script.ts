import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** A Lua script. Each state transition is one script; the header of its file states the contract. */
export interface Script {
  readonly name: string;
  readonly lua: string;
  /** Hash that EVALSHA sends instead of the text. */
  readonly sha1: string;
}

/** Texts of files by URL. */
const texts = new Map<string, string>();
/** The statements of parts of files, with the paths of included files between them. Kept because many scripts include the same files. */
const parts = new Map<string, readonly (LuaStatement | string)[]>();
/** The line before a script in a file of several scripts; the group is the script's name. */
const SCRIPT = /^--- @script "([a-z-]+)"\n/m;

/**
 * Reads a script of a file beside the module that uses it. A file holds the scripts of one concept: each follows a line `--- @script "name"`, up to
 * the next such line. All scripts of the file may use the functions and constants before the first such line. Without a name, the whole
 * file is the script, which has the name of the file.
 *
 * A line `--- @include "./path.lua"` stands for what the scripts of that file share. The path is relative to the including file. A file that is
 * included several times is inserted once, at its first place.
 *
 * Leaves out comments, and the functions and constants that the script cannot reach (`reachable`): most scripts use a few functions of the
 * files that they include. This takes a millisecond, so it happens at the script's first use: a process uses few scripts of the modules that it
 * imports. But all files are read at once, since another release may replace them while this process runs.
 *
 * `lua` throws an Error for a file that `parseLua` cannot split into statements.
 * @throws Error for a name that the file does not have
 * @example const finish = loadScript(new URL('./endings.lua', import.meta.url), 'finish');
 */
export function loadScript(url: URL, name?: string): Script {
  textOf(url);
  if (name !== undefined && !partsOf(url).has(name)) throw new Error(`${url.pathname} has no script "${name}".`);
  return new LoadedScript(url, name);
}

/** The names of a file's scripts; none for a file that is one script. */
export function scriptsIn(url: URL): string[] {
  return [...partsOf(url).keys()].filter((name) => name !== '');
}

/** Reads a file and those that it includes, once. */
function textOf(file: URL): string {
  const keptText = texts.get(file.href);
  if (keptText !== undefined) return keptText;
  const text = readFileSync(file, 'utf8');
  texts.set(file.href, text);
  for (const line of text.split('\n')) {
    const path = INCLUDE.exec(line)?.[1];
    if (path !== undefined) textOf(new URL(path, file));
  }
  return text;
}

/** The texts of a file's scripts by name, and under the name '' what they share. */
function partsOf(file: URL): ReadonlyMap<string, string> {
  const [shared = '', ...rest] = textOf(file).split(SCRIPT);
  const found = new Map([['', shared]]);
  for (let i = 0; i < rest.length; i += 2) found.set(rest[i] ?? '', rest[i + 1] ?? '');
  return found;
}

class LoadedScript implements Script {
  readonly name: string;
  readonly #url: URL;
  readonly #part: string | undefined;
  #built: { readonly lua: string; readonly sha1: string } | undefined;

  constructor(url: URL, name: string | undefined) {
    this.#url = url;
    this.#part = name;
    this.name = name ?? url.pathname.slice(url.pathname.lastIndexOf('/') + 1).replace(/\.lua$/, '');
  }

  get lua(): string {
    return this.#build().lua;
  }

  get sha1(): string {
    return this.#build().sha1;
  }

  #build() {
    if (this.#built === undefined) {
      const included = new Set<string>();
      const shared = statementsOf(this.#url, '', included);
      const own = this.#part === undefined ? [] : statementsOf(this.#url, this.#part, included);
      const lua = reachable([...shared, ...own]);
      this.#built = { lua, sha1: createHash('sha1').update(lua).digest('hex') };
    }
    return this.#built;
  }
}

/** The statements of a part of a file, and of the files that it includes. `included` has the parts that the script has already. */
function statementsOf(file: URL, part: string, included: Set<string>): readonly LuaStatement[] {
  const key = `${file.href}#${part}`;
  if (included.has(key)) return [];
  included.add(key);
  const statements = parts.get(key) ?? parseLua(partsOf(file).get(part) ?? '', file.pathname);
  parts.set(key, statements);
  return statements.flatMap((statement) =>
    typeof statement === 'string' ? statementsOf(new URL(statement, file), '', included) : statement,
  );
}

/** A statement of the outermost level of a Lua file, or of a block `do … end` there. */
export interface LuaStatement {
  /** The lines of the statement, without comment lines. */
  readonly text: string;
  /** The names that the statement defines, if it has no other effect. A script that uses none of these names does not need the statement. */
  readonly defines?: readonly string[] | undefined;
  /** The names in the text. Fields and keywords may be among them, so a script may keep a few statements that it does not need. */
  readonly uses: readonly string[];
}

const HEADER = /^--\[\[[\s\S]*?\]\]/;
/** A line that stands for another file; the group is its path. */
export const INCLUDE = /^--- @include "([a-z./-]+)"$/;
const COMMENT_OR_BLANK = /^\s*(?:--.*)?$/;
/** Words of the code: names, keywords, strings, comments, `..`, and names after a dot or colon. Only the first two match `NAME`. */
const WORDS = /'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|--.*|\.\.+|[.:]?[A-Za-z_]\w*/g;
const NAME = /^[A-Za-z_]/;
/** By how much a keyword changes the number of open blocks. */
const NEST = new Map(Object.entries({ function: 1, do: 1, if: 1, repeat: 1, end: -1, until: -1 }));
/** A line that continues a statement. A line `end` does so when the statement has an open block. */
const CONTINUES = /^(?:\s|else|then\b|until\b|end\b.|[)}\]])/;
/** A function. Without `local`, an earlier statement has declared its name. */
const FUNCTION = /^(?:local )?function (\w+)\(/;
/** Local variables without values, or with values that contain no call. */
const VARIABLES = /^local (\w+(?:, \w+)*)(?: = ([^(]+))?$/;
const STRINGS = /'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g;

/**
 * Splits a file of Lua into its statements, and the paths of the files that it includes. Each statement begins in the first column of a
 * line; its other lines are indented, or close a bracket or a block. The words `do` and `end` of a block are statements of their own.
 * A comment takes whole lines; only one at the beginning of the file may be in long brackets.
 *
 * @throws Error for a file of another form.
 */
export function parseLua(source: string, file: string): readonly (LuaStatement | string)[] {
  const code = source.replace(HEADER, '');
  if (/\[=*\[/.test(code))
    throw new Error(`${file}: only the comment at the beginning of a file may be in long brackets.`);
  const parts: (LuaStatement | string)[] = [];
  let statement = new OpenStatement();
  const finish = () => {
    if (statement.lines.length > 0) parts.push(...statement.finish(file));
    statement = new OpenStatement();
  };
  for (const line of code.split('\n')) {
    const include = INCLUDE.exec(line)?.[1];
    if (include !== undefined) {
      finish();
      parts.push(include);
    } else if (!COMMENT_OR_BLANK.test(line)) {
      if (!CONTINUES.test(line) && !(line === 'end' && statement.depth > 0)) finish();
      statement.add(line);
    }
  }
  finish();
  return parts;
}

class OpenStatement {
  readonly lines: string[] = [];
  /** The number of blocks that are open after the last line. */
  depth = 0;
  readonly #words: string[] = [];
  /** Number of words up to the end of the statement's first block; 0 before that end. */
  #closedAt = 0;

  add(line: string): void {
    this.lines.push(line);
    for (const word of line.match(WORDS) ?? []) {
      this.#words.push(word);
      const change = NEST.get(word) ?? 0;
      this.depth += change;
      if (change < 0 && this.depth === 0) this.#closedAt ||= this.#words.length;
    }
  }

  /** The statement. Local names without values become one statement each, since a script may use only some of them. */
  finish(file: string): readonly LuaStatement[] {
    const text = this.lines.join('\n');
    if (text === 'do' || text === 'end') return [{ text, uses: [] }];
    const name = FUNCTION.exec(text)?.[1];
    const variables = name === undefined ? VARIABLES.exec(text) : null;
    const [, list, values] = variables ?? [];
    // Nothing may follow the block of a function.
    const isAlone = name === undefined ? !hasTwo(values ?? '') : this.#closedAt === this.#words.length;
    if (this.depth !== 0 || !isAlone) throw new Error(`${file}: not exactly one statement:\n${text}`);
    const defines = name === undefined ? list?.split(', ') : [name];
    if (list !== undefined && values === undefined)
      return (defines ?? []).map((one) => ({ text: `local ${one}`, defines: [one], uses: [] }));
    const isUse = (word: string) => NAME.test(word) && !NEST.has(word);
    return [{ text, defines, uses: [...new Set(this.#words)].filter(isUse) }];
  }
}

/** True for values of which two follow each other without an operator: the second is another statement, or the argument of a call. */
function hasTwo(values: string): boolean {
  const words = values.replace(STRINGS, "'").replace(/\b(?:and|or|not)\b/g, '+');
  return /;|[\w'\]}]\s*['{]|[\w'\]}]\s+\w/.test(words);
}

/** The text of a script: its statements, except those that only define names which no other statement reaches, and blocks that become empty. */
export function reachable(statements: readonly LuaStatement[]): string {
  const definitions = new Map<string, LuaStatement[]>();
  for (const statement of statements) {
    for (const name of statement.defines ?? []) {
      const others = definitions.get(name);
      if (others === undefined) definitions.set(name, [statement]);
      else others.push(statement);
    }
  }
  const reached = new Set(statements.filter(({ defines }) => defines === undefined));
  // The loop also visits the statements that it adds.
  for (const { uses } of reached)
    for (const name of uses) for (const definition of definitions.get(name) ?? []) reached.add(definition);
  const text: string[] = [];
  for (const statement of statements) {
    if (!reached.has(statement)) continue;
    if (statement.text === 'end' && text.at(-1) === 'do') text.pop();
    else text.push(statement.text);
  }
  return `${text.join('\n')}\n`;
}
