import type { FunctionVersion } from '../functions/types.ts';
import type { Store } from '../store/store.ts';

/** Tenants queried at once. */
const BATCH = 100;

/** Looks up versions with a sealed environment. */
interface StoredVersions {
  runnableVersions(tenant: string): Promise<readonly FunctionVersion[]>;
}

/**
 * The id of a master key under which a tenant's secret, a webhook secret or a value of a function's environment is
 * sealed; null when Redis holds no sealed value. A sealed value begins with the id of its master key, see `sealing.ts`.
 */
export async function sealedUnder(store: Store, functions: StoredVersions): Promise<string | null> {
  const { keys } = store;
  const tenants = await store.call((redis) => redis.smembers(keys.tenants));
  for (let i = 0; i < tenants.length; i += BATCH) {
    const sealedValues = await store.call((redis) =>
      Promise.all(
        tenants.slice(i, i + BATCH).map(async (tenant) => {
          const [[, secretValue], webhookSecret] = await Promise.all([
            redis.hrandfield(keys.secretValues(tenant), 1, 'WITHVALUES') as Promise<string[]>,
            redis.get(keys.webhookSecret(tenant)),
          ]);
          return secretValue ?? webhookSecret ?? '';
        }),
      ),
    );
    const sealed = sealedValues.find((value) => value !== '');
    if (sealed !== undefined) return keyOf(sealed);
  }
  for (const tenant of tenants) {
    for (const { environment = {} } of await functions.runnableVersions(tenant)) {
      const [sealed] = Object.values(environment);
      if (sealed !== undefined) return keyOf(sealed);
    }
  }
  return null;
}

const keyOf = (sealed: string): string => sealed.slice(0, sealed.indexOf('.'));
