import type { FileRights } from '../../protocol/calls.ts';
import { fault } from '../fault.ts';
import { checkWritableBy, isSystemName } from './names.ts';

/** The inferlet that makes a call. */
export interface Caller {
  readonly tenant: string;
  /** Id of this attempt to run the inferlet; an earlier attempt that still lingers has another id. A lock belongs to one attempt and ends with it. */
  readonly inferlet: string;
  /** The function that the inferlet runs. Rights belong to functions. */
  readonly functionName: string;
}

/** Owner of a file, and the rights of other functions. */
export interface Ownership {
  /** The function that made the file. */
  readonly owner: string;
  readonly rights: FileRights;
}

/** Every function may read a file under `system/`, whatever the rights of the file. */
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

/** A function with the right to write a file may give it new content; only the owner may change the rights. */
export function checkNewRights(caller: Caller, name: string, file: Ownership, rights: FileRights): void {
  if (rights !== file.rights && file.owner !== caller.functionName) {
    throw fault(
      'unsupported',
      `only the function "${file.owner}" may change the rights of "${name}" from ${file.rights} to ${rights}`,
    );
  }
}
