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
/** The statements of files by URL, with the paths of included files between them. Kept because many scripts include the same files. */
const files = new Map<string, readonly (LuaStatement | string)[]>();

/**
 * Reads a script beside the module that uses it, and replaces each line `--- @include "./path.lua"` by that file. The path is relative to
 * the including file. A file that is included several times is inserted once, at its first place.
 *
 * Leaves out comments, and the functions and constants that the script cannot reach (`reachable`): most scripts use a few functions of the
 * files that they include. This takes a millisecond, so it happens at the script's first use: a process uses few scripts of the modules that it
 * imports. But all files are read at once, since another release may replace them while this process runs.
 *
 * `lua` throws an Error for a file that `parseLua` cannot split into statements.
 * @example const finish = loadScript(new URL('./scripts/finish.lua', import.meta.url));
 */
export function loadScript(url: URL): Script {
  textOf(url);
  return new LoadedScript(url);
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

class LoadedScript implements Script {
  readonly name: string;
  readonly #url: URL;
  #built: { readonly lua: string; readonly sha1: string } | undefined;

  constructor(url: URL) {
    this.#url = url;
    this.name = url.pathname.slice(url.pathname.lastIndexOf('/') + 1).replace(/\.lua$/, '');
  }

  get lua(): string {
    return this.#build().lua;
  }

  get sha1(): string {
    return this.#build().sha1;
  }

  #build() {
    if (this.#built === undefined) {
      const lua = reachable(statementsOf(this.#url, new Set()));
      this.#built = { lua, sha1: createHash('sha1').update(lua).digest('hex') };
    }
    return this.#built;
  }
}

function statementsOf(file: URL, included: Set<string>): readonly LuaStatement[] {
  if (included.has(file.href)) return [];
  included.add(file.href);
  const parts = files.get(file.href) ?? parseLua(textOf(file), file.pathname);
  files.set(file.href, parts);
  return parts.flatMap((part) => (typeof part === 'string' ? statementsOf(new URL(part, file), included) : part));
}
