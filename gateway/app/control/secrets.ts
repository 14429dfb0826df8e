import type { Call } from '../control.ts';

/** A secret without its value, which nobody can read back. */
export interface Secret {
  readonly name: string;
  /** Grows with every new value. Function versions keep the revision they were deployed with. */
  readonly revision: number;
  /** ISO 8601. */
  readonly changedAt: string;
  readonly changedBy: string;
  /** Functions of which a version in service uses it, with the revision that each uses. */
  readonly usedBy: readonly { readonly function: string; readonly version: string; readonly revision: number }[];
}

/** Secrets of a tenant, for functions whose manifest names them. */
export interface Secrets {
  list(call: Call): Promise<readonly Secret[]>;
  /** Stores a new revision. Throws `invalid-secret`. */
  set(call: Call, name: string, value: string): Promise<Secret>;
  /** Whether there was such a secret; throws `conflict` while a version in service uses it. */
  remove(call: Call, name: string): Promise<boolean>;
}
