import { randomUUID } from 'node:crypto';
import { machineKeys } from '../keys.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { MachineInfo, ReachableGpuHost } from './types.ts';

const REMOVE = loadScript(new URL('./scripts/remove.lua', import.meta.url));

export class Machines {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** All machines by name: those that run, and those that died within the last hour and have not returned. */
  list(): Promise<MachineInfo[]> {
    return listMachines(this.#store);
  }

  /**
   * Removes a machine for good: its supervisor stops, and a supervisor with its certificate can register no more. Resolves to false when no
   * machine has the name.
   */
  async remove(name: string): Promise<boolean> {
    const { keys } = this.#store;
    const scriptKeys = [...machineKeys(keys, name), keys.reply(randomUUID())];
    return (await this.#store.script(REMOVE, scriptKeys, [name, removalNotice(name)])) === 1;
  }

  /** The GPU hosts that processes of one machine can reach: its own, and those of other machines that have a network address. */
  async gpuHosts(machine: string): Promise<ReachableGpuHost[]> {
    const machines = await this.list();
    return machines.flatMap(({ name, alive, gpuHosts }) =>
      gpuHosts
        .filter(({ address }) => name === machine || !isSocketPath(address))
        .map((host) => ({ ...host, machine: name, alive })),
    );
  }

  /** Calls back after a change, or when one may have been missed. Resolves to a function that stops it. */
  onChange(listener: () => void): Promise<() => void> {
    return this.#channels.listen(this.#store.keys.machinesChannel, { message: listener, resumed: listener });
  }
}

/** All machines by name, as `Machines.list`. */
export async function listMachines(store: Store): Promise<MachineInfo[]> {
  const { keys } = store;
  const names = await store.call((redis) => redis.smembers(keys.machines));
  if (names.length === 0) return [];
  const readKeys = names.flatMap((name) => [keys.machine(name), keys.machineLease(name)]);
  const values = await store.call((redis) => redis.mget(readKeys));
  const machines = names.flatMap((_, i) => {
    const text = values[2 * i];
    if (typeof text !== 'string') return [];
    const machine = parse(text);
    return [{ ...machine, alive: values[2 * i + 1] === machine.life }];
  });
  // Their descriptions have expired. A machine that has returned meanwhile adds its name again at its next renewal.
  const forgottenNames = names.filter((_, i) => values[2 * i] === null);
  if (forgottenNames.length > 0) await store.call((redis) => redis.srem(keys.machines, forgottenNames));
  return machines.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
}

/**
 * The notice of a machine's removal on the machines' channel. The machine's Redis user may end before a renewal of the
 * lease reports the removal, so the supervisor learns of it from this notice.
 */
export const removalNotice = (machine: string): string => `removed ${machine}`;

/** Fingerprints of the certificates of machines that an operator has removed. */
export function removedCertificates(store: Store): Promise<string[]> {
  return store.call((redis) => redis.smembers(store.keys.removedMachines));
}

/** True for the path of a unix socket, false for `host:port`. */
const isSocketPath = (address: string): boolean => !/^(?:tcp:\/\/)?[^/]*:\d+$/.test(address);

function parse(text: string): Omit<MachineInfo, 'alive'> {
  try {
    return JSON.parse(text) as Omit<MachineInfo, 'alive'>;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of a machine is not JSON.', { cause });
  }
}
