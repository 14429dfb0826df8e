import type { FileRights } from '../../protocol/calls.ts';
import { fault } from '../fault.ts';
import { checkWritableBy, isSystemName } from './names.ts';

/** Who asks. */
export interface Caller {
  readonly tenant: string;
  /** The inferlet, of which there may be two of one id (an attempt, and one before it that lingers): locks are its own, and go with it. */
  readonly inferlet: string;
  /** The function that it runs: rights go by function. */
  readonly functionName: string;
}

/** Whose a file is, and what others may do with it. */
export interface Ownership {
  /** The function that made it. */
  readonly owner: string;
  readonly rights: FileRights;
}

/** Names under `system/` are readable by everyone, whatever their rights. */
export function canRead(caller: Caller, name: string, file: Ownership): boolean {
  return isSystemName(name) || file.rights !== 'private' || file.owner === caller.functionName;
}

export function checkRead(caller: Caller, name: string, file: Ownership): void {
  if (!canRead(caller, name, file)) throw fault('unsupported', `"${name}" is private to the function "${file.owner}"`);
}

export function checkWrite(caller: Caller, name: string, file: Ownership): void {
  checkWritableBy(caller.tenant, name);
  if (file.owner !== caller.functionName && file.rights !== 'writable') {
    throw fault('unsupported', `only the function "${file.owner}" may write "${name}", which is ${file.rights}`);
  }
}

/** Whoever may write a file may give it new content; only its owner may change what others may do. */
export function checkNewRights(caller: Caller, name: string, file: Ownership, rights: FileRights): void {
  if (rights !== file.rights && file.owner !== caller.functionName) {
    throw fault(
      'unsupported',
      `only the function "${file.owner}" may change the rights of "${name}" from ${file.rights} to ${rights}`,
    );
  }
}
