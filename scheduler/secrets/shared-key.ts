import type { Store } from '../store/store.ts';
import type { MasterKeys } from './master-keys.ts';

/** The parts of the scheduler that describe the other machines. */
interface SchedulerParts {
  readonly store: Store;
  readonly machines: { list(): Promise<readonly { readonly name: string; readonly alive: boolean }[]> };
}

/** Id of the master key of the other machines that run now; null when none runs, or none has stored the id of its key. */
export async function keyOfOthers({ store, machines }: SchedulerParts, machine: string): Promise<string | null> {
  const hasOthers = (await machines.list()).some(({ alive, name }) => alive && name !== machine);
  return hasOthers ? await store.call((redis) => redis.get(store.keys.masterKey)) : null;
}

/**
 * Checks that this gateway has the master key of the other machines, and stores the id of this gateway's first key for
 * them. During a rotation, the gateway may seal under another key than the other machines, as long as it also has their key.
 * @throws when other machines use a key that this machine lacks
 */
export async function agreeOnMasterKey(shared: SchedulerParts, masterKeys: MasterKeys, machine: string): Promise<void> {
  const { id } = await masterKeys.first();
  const { store } = shared;
  const storedId = await store.call((redis) => redis.set(store.keys.masterKey, id, 'NX', 'GET'));
  if (storedId === null || storedId === id) return;
  await assertMasterKey(shared, masterKeys, machine);
  await store.call((redis) => redis.set(store.keys.masterKey, id));
}

/** @throws when other machines use a master key that this machine lacks */
export async function assertMasterKey(shared: SchedulerParts, masterKeys: MasterKeys, machine: string): Promise<void> {
  const id = await keyOfOthers(shared, machine);
  if (id === null || (await masterKeys.byId(id)) !== null) return;
  throw new Error(
    `The machine ${machine} lacks the master key ${id}, under which the other machines seal secrets. ` +
      'Copy master.key from the home of another machine to the home of this one (mode 0600), or give all of them the same PIE_MASTER_KEY.',
  );
}
