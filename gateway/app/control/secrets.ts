import type { Call } from '../control.ts';

/** A secret without its value, which no client can read back. */
export interface Secret {
  readonly name: string;
  /** Grows with every new value. A function version keeps the revision that it was deployed with. */
  readonly revision: number;
  /** ISO 8601. */
  readonly changedAt: string;
  readonly changedBy: string;
  /** Functions with a version in service that uses the secret, each with its revision. */
  readonly usedBy: readonly { readonly function: string; readonly version: string; readonly revision: number }[];
}

export interface Secrets {
  list(call: Call): Promise<readonly Secret[]>;
  /** Stores a new revision. Throws `invalid-secret`. */
  set(call: Call, name: string, value: string): Promise<Secret>;
  /** False when there was no such secret; throws `conflict` while a version in service uses it. */
  remove(call: Call, name: string): Promise<boolean>;
}
