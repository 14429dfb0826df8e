import type { Call } from '../control.ts';
import type { Secret } from '../schemas/tenants.ts';

export type { Secret };

export interface Secrets {
  list(call: Call): Promise<readonly Secret[]>;
  /** Stores a new revision. Throws `invalid-secret`. */
  set(call: Call, name: string, value: string): Promise<Secret>;
  /** False when there was no such secret; throws `conflict` while a version in service uses it. */
  remove(call: Call, name: string): Promise<boolean>;
}
