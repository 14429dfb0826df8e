import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { INCLUDE, type LuaStatement, parseLua, reachable } from './lua-statements.ts';

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
