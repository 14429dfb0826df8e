import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type LuaStatement, parseLua, reachable } from './lua-statements.ts';

/** A Lua script. Each state transition is one script; the header of its file states the contract. */
export interface Script {
  readonly name: string;
  readonly lua: string;
  /** Hash that EVALSHA sends instead of the text. */
  readonly sha1: string;
}

/** Files by URL: their statements, and between them the paths of their includes. Most includes belong to many scripts. */
const files = new Map<string, readonly (LuaStatement | string)[]>();

/**
 * Reads a script beside the module that uses it, and replaces each line `--- @include "./path.lua"` by that file. The path is relative to
 * the including file. A file that is included several times is inserted once, at its first place.
 *
 * Leaves out comments, and the functions and constants that the script cannot reach (`reachable`): most scripts use a few functions of the
 * files that they include.
 *
 * @throws Error for a file that `parseLua` cannot split into statements.
 * @example const finish = loadScript(new URL('./scripts/finish.lua', import.meta.url));
 */
export function loadScript(url: URL): Script {
  const lua = reachable(read(url, new Set()));
  const name = url.pathname.slice(url.pathname.lastIndexOf('/') + 1).replace(/\.lua$/, '');
  return { name, lua, sha1: createHash('sha1').update(lua).digest('hex') };
}

function read(file: URL, included: Set<string>): readonly LuaStatement[] {
  if (included.has(file.href)) return [];
  included.add(file.href);
  const parts = files.get(file.href) ?? parseLua(readFileSync(file, 'utf8'), file.pathname);
  files.set(file.href, parts);
  return parts.flatMap((part) => (typeof part === 'string' ? read(new URL(part, file), included) : part));
}
