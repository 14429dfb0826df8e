import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import type { Environments } from '#scheduler/secrets/environments.ts';
import { MAX_ENVIRONMENT_CHARACTERS } from '#scheduler/secrets/rules.ts';
import { SecretError, type Secrets } from '#scheduler/secrets/secrets.ts';
import type { Inferlet } from './inferlet.ts';

/** Implements `wit/environment.wit`. */
export const environment = {
  'get-variable': (inferlet: Inferlet, name: string): string | undefined => inferlet.description.variables?.get(name),
  'list-variables': (inferlet: Inferlet): readonly string[] => [...(inferlet.description.variables?.keys() ?? [])],
};

/** The stores that decrypt variables. */
export interface Openers {
  readonly secrets: Pick<Secrets, 'open'>;
  readonly environments: Pick<Environments, 'open'>;
}

/**
 * The secrets and plain variables that a version was deployed with, sorted by name. They are decrypted for each
 * invocation, and not kept after its end.
 *
 * @throws SecretError when one cannot be opened, or when they are too long together; StoreError
 */
export async function variablesOf(
  version: FunctionVersion | null,
  { secrets, environments }: Openers,
): Promise<ReadonlyMap<string, string>> {
  if (version === null) return new Map();
  const [opened, plain] = await Promise.all([
    secrets.open(ownerOf(version), version.secrets ?? {}),
    environments.open(version),
  ]);
  const values = new Map([...opened, ...plain].sort(([a], [b]) => (a < b ? -1 : 1)));
  let characters = 0;
  for (const value of values.values()) characters += value.length;
  if (characters <= MAX_ENVIRONMENT_CHARACTERS) return values;
  throw new SecretError(
    `The secrets and variables of the function have ${characters} characters; ${MAX_ENVIRONMENT_CHARACTERS} are allowed. Name fewer secrets in its manifest, or set shorter values, and deploy it again.`,
  );
}
