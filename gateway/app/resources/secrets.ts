import type { Call } from '../control.ts';
import type { Secret } from '../schemas/tenants.ts';

export type { Secret };

export interface Secrets {
  list(call: Call): Promise<readonly Secret[]>;
  /** Stores a new revision. Throws `invalid-secret`. */
  set(call: Call, name: string, value: string): Promise<Secret>;
  /** Returns false when there was no such secret. Throws `conflict` while a version in service uses the secret. */
  remove(call: Call, name: string): Promise<boolean>;
}
