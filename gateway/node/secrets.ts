import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { faultOfSecret, MAX_REVISIONS, MAX_SECRETS, VARIABLE_NAME } from '#scheduler/secrets/rules.ts';
import { SecretError, type Secret as StoredSecret } from '#scheduler/secrets/secrets.ts';
import type { Call, Secret, Secrets } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { translating } from './store-errors.ts';

/** Secrets of the caller's tenant, sealed in Redis. */
export class NodeSecrets implements Secrets {
  readonly #scheduler: Scheduler;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  list({ principal }: Call): Promise<readonly Secret[]> {
    return translating(async () => {
      const { secrets, functions } = this.#scheduler;
      const [storedSecrets, servedVersions] = await Promise.all([
        secrets.list(principal.tenant),
        functions.inService(principal.tenant),
      ]);
      return storedSecrets.map((secret) => withUses(secret, servedVersions));
    });
  }

  set({ principal }: Call, name: string, value: string): Promise<Secret> {
    return translating(async () => {
      checkName(name);
      const fault = faultOfSecret(value);
      if (fault !== null) throw new GatewayError('invalid-secret', `${name}: ${fault}.`, { field: '/value' });
      const { secrets, functions, audit } = this.#scheduler;
      const { tenant, keyId } = principal;
      const secret = await secrets.set(tenant, name, value, keyId).catch(throwSealingFault);
      if (secret === 'too-many-secrets') {
        throw new GatewayError('conflict', `The tenant has ${MAX_SECRETS} secrets, the maximum.`, {
          hint: 'Remove one that no function uses: `pie secrets remove NAME`. `pie secrets list` shows the uses.',
        });
      }
      if (secret === 'too-many-revisions') {
        throw new GatewayError(
          'conflict',
          `The tenant's function versions use ${MAX_REVISIONS} secret values, the maximum.`,
          {
            hint: 'Remove versions that you no longer need: `pie remove NAME@VERSION`.',
          },
        );
      }
      await audit.record(keyId, tenant, 'secret.set', name, { revision: secret.revision });
      return withUses(secret, await functions.inService(tenant));
    });
  }

  remove({ principal }: Call, name: string): Promise<boolean> {
    return translating(async () => {
      if (!VARIABLE_NAME.test(name)) return false;
      const { secrets, functions, audit } = this.#scheduler;
      const { tenant, keyId } = principal;
      const servedVersions = await functions.inService(tenant);
      const usingVersions = servedVersions.filter((version) => revisionOf(version, name) !== undefined);
      if (usingVersions.length > 0) {
        const names = usingVersions.map((version) => `${version.name}@${version.version}`);
        throw new GatewayError('conflict', `The secret ${name} is used by ${names.slice(0, 5).join(', ')}.`, {
          hint: 'Deploy these functions without it, or remove them, first.',
        });
      }
      const removed = await secrets.remove(tenant, name);
      if (removed) await audit.record(keyId, tenant, 'secret.remove', name);
      return removed;
    });
  }
}

function checkName(name: string): void {
  if (VARIABLE_NAME.test(name)) return;
  throw new GatewayError(
    'invalid-secret',
    `"${name.slice(0, 80)}" is not a valid secret name: a capital letter, then capital letters, digits and "_", 64 at most.`,
    { field: '/name' },
  );
}

/** Throws a `SecretError` as `internal`: the platform could not seal or open a value, which is no fault of the client. */
function throwSealingFault(error: unknown): never {
  if (!(error instanceof SecretError)) throw error;
  throw new GatewayError('internal', error.message, { cause: error });
}

function withUses(
  { name, revision, changedAt, changedBy }: StoredSecret,
  servedVersions: readonly FunctionVersion[],
): Secret {
  const usedBy = servedVersions.flatMap((version) => {
    const usedRevision = revisionOf(version, name);
    return usedRevision === undefined
      ? []
      : [{ function: version.name, version: version.version, revision: usedRevision }];
  });
  return { name, revision, changedAt, changedBy, usedBy };
}

function revisionOf(version: FunctionVersion, name: string): number | undefined {
  return version.secrets?.[name];
}
