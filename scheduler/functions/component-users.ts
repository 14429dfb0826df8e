import type { Store } from '../store/store.ts';
import type { Functions } from './functions.ts';
import type { FunctionVersion } from './types.ts';

/** The deployed and draining versions that use a component; null when there are more than `maxUsers`. */
export async function componentUsers(
  { store, functions }: { readonly store: Store; readonly functions: Pick<Functions, 'runnable'> },
  componentHash: string,
  maxUsers: number,
): Promise<FunctionVersion[] | null> {
  const key = store.keys.blobUsers(componentHash);
  const users = await store.call((redis) => redis.srandmember(key, maxUsers + 1));
  if (users.length > maxUsers) return null;
  const versions = await Promise.all(
    users.map((user) => {
      const [, tenant = '', name = '', version = ''] = /^([^/]*)\/(.*)@(.*)$/.exec(user) ?? [];
      return functions.runnable(tenant, name, version);
    }),
  );
  return versions.filter((version) => version !== null);
}
