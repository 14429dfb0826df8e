import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import type { Secrets } from '#scheduler/secrets/secrets.ts';
import { type Redact, redactor } from './redact.ts';

/** What a version was deployed with besides its code. */
export interface Variables {
  /** Secrets and plain variables, by name, in order. */
  readonly values: ReadonlyMap<string, string>;
  /** Takes the values of the secrets out of a text that others may read. */
  readonly redact: Redact;
}

/**
 * The variables of a version. Secrets are opened for each invocation anew and kept no longer than that. Throws `SecretError` when one cannot
 * be opened, `StoreError`.
 */
export async function variablesOf(version: FunctionVersion | null, secrets: Pick<Secrets, 'open'>): Promise<Variables> {
  const opened =
    version === null ? new Map<string, string>() : await secrets.open(ownerOf(version), version.secrets ?? {});
  const all = [...opened, ...Object.entries(version?.manifest.environment ?? {})];
  return { values: new Map(all.sort(([a], [b]) => (a < b ? -1 : 1))), redact: redactor(opened) };
}
