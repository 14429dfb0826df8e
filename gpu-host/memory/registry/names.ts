import { createHash } from 'node:crypto';
import { refuseName } from '../../protocol/names.ts';
import { CallFault, fault } from '../fault.ts';

/** Exports and KV files have separate name spaces. */
export type EntryKind = 'export' | 'file';

/** The tenant whose names under `system/` every tenant can read. */
export const SYSTEM_TENANT = 'system';
const SYSTEM_PREFIX = 'system/';

/** @throws CallFault `invalid-argument` for a malformed name */
export function checkName(name: string): void {
  const refused = refuseName(name);
  if (refused) throw new CallFault(refused);
}

export function isSystemName(name: string): boolean {
  return name.startsWith(SYSTEM_PREFIX);
}

/** The tenant that owns `name` when `tenant` uses it. */
export function tenantOfName(tenant: string, name: string): string {
  return isSystemName(name) ? SYSTEM_TENANT : tenant;
}

/** @throws CallFault `unsupported` when `tenant` may not write `name` */
export function checkWritableBy(tenant: string, name: string): void {
  if (isSystemName(name) && tenant !== SYSTEM_TENANT) {
    throw fault('unsupported', `names under "${SYSTEM_PREFIX}" are written by operators only`);
  }
}

/** The file name of an entry. It has a hash instead of the name, so that no input of a tenant becomes part of a path. */
export function fileNameOf(kind: EntryKind, name: string): string {
  return `${kind}-${digest(name)}.kv`;
}

export function directoryNameOf(tenant: string): string {
  return digest(tenant);
}

function digest(text: string): string {
  // Hashes UTF-16, because UTF-8 would turn every lone surrogate into the same character. 40 hex digits are 160 bits, enough to rule out
  // two names with the same hash.
  return createHash('sha256').update(text, 'utf16le').digest('hex').slice(0, 40);
}
