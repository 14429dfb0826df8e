import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** A Lua script: every state transition is one, with its contract in the file's header. */
export interface Script {
  readonly name: string;
  readonly lua: string;
  /** What Redis calls it: EVALSHA sends this instead of the text. */
  readonly sha1: string;
}

const INCLUDE = /^[ \t]*--- @include "([a-z./-]+)"[ \t]*$/gm;

/**
 * Reads a script that lies beside the module that uses it. A line `--- @include "./path.lua"` is replaced by that file, named from the
 * file that includes it, where it comes first; a file that is included several times is there once.
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
