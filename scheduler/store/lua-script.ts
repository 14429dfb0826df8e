import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** A Lua script. Each state transition is one script; the header of its file states the contract. */
export interface Script {
  readonly name: string;
  readonly lua: string;
  /** Hash that EVALSHA sends instead of the text. */
  readonly sha1: string;
}

const INCLUDE = /^[ \t]*--- @include "([a-z./-]+)"[ \t]*$/gm;

/**
 * Reads a script beside the module that uses it, and replaces each line `--- @include "./path.lua"` by that file. The path is relative to
 * the including file. A file that is included several times is inserted once, at its first place.
 *
 * @example const finish = loadScript(new URL('./scripts/finish.lua', import.meta.url));
 */
export function loadScript(url: URL): Script {
  const lua = read(url, new Set());
  const name = url.pathname.slice(url.pathname.lastIndexOf('/') + 1).replace(/\.lua$/, '');
  return { name, lua, sha1: createHash('sha1').update(lua).digest('hex') };
}

function read(file: URL, included: Set<string>): string {
  if (included.has(file.href)) return '';
  included.add(file.href);
  return readFileSync(file, 'utf8').replace(INCLUDE, (_line, path: string) => read(new URL(path, file), included));
}
