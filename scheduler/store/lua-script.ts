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

/** Files by URL, each split into texts with the paths of its includes between them. Most includes belong to many scripts. */
const files = new Map<string, readonly string[]>();

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
  const parts = files.get(file.href) ?? readFileSync(file, 'utf8').split(INCLUDE);
  files.set(file.href, parts);
  return parts.map((part, i) => (i % 2 === 0 ? part : read(new URL(part, file), included))).join('');
}
