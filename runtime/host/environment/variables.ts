import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import type { Environments } from '#scheduler/secrets/environments.ts';
import type { Secrets } from '#scheduler/secrets/secrets.ts';
import { type Redact, redactNothing, redactor } from './redact.ts';

/** The variables that a version was deployed with. */
export interface Variables {
  /** Secrets and plain variables, by name, in order. */
  readonly values: ReadonlyMap<string, string>;
  /** Removes the values of both from a text that others may read; see `redactor`. */
  readonly redact: Redact;
}

/** The stores that decrypt variables. */
export interface Openers {
  readonly secrets: Pick<Secrets, 'open'>;
  readonly environments: Pick<Environments, 'open'>;
}

/**
 * The variables of a version, decrypted for each invocation and kept no longer than it.
 * @throws SecretError when one cannot be opened, StoreError
 */
export async function variablesOf(
  version: FunctionVersion | null,
  { secrets, environments }: Openers,
): Promise<Variables> {
  if (version === null) return { values: new Map(), redact: redactNothing };
  const [opened, plain] = await Promise.all([
    secrets.open(ownerOf(version), version.secrets ?? {}),
    environments.open(version),
  ]);
  const values = new Map([...opened, ...plain].sort(([a], [b]) => (a < b ? -1 : 1)));
  return { values, redact: redactor(values) };
}
