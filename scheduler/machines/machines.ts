import { randomUUID } from 'node:crypto';
import { machineKeys } from '../keys.ts';
import { lookAt, type MachineLooks, type ProcessEnd, type ProcessLook } from '../policies/silence.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import type { MachineInfo, ReachableGpuHost } from './types.ts';

const REMOVE = loadScript(new URL('./machines.lua', import.meta.url), 'remove');

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
   * Removes a machine for good: its supervisor stops, and no supervisor can register with the machine's certificate again. Resolves to false when
   * no machine has the name.
   */
  async remove(name: string): Promise<boolean> {
    const { keys } = this.#store;
    const scriptKeys = [...machineKeys(keys, name), keys.reply(randomUUID())];
    return (await this.#store.script(REMOVE, scriptKeys, [name, removalNotice(name)])) === 1;
  }

  /** The GPU hosts that processes of one machine can reach: all GPU hosts of this machine, and those of other machines at network addresses. */
  async gpuHosts(machine: string): Promise<ReachableGpuHost[]> {
    const machines = await this.list();
    return machines.flatMap(({ name, alive, gpuHosts }) =>
      gpuHosts
        .filter(({ address }) => name === machine || !isSocketPath(address))
        .map((host) => ({ ...host, machine: name, alive })),
    );
  }

  /** What the supervisor of a machine last saw of its processes; null when its lease has run out, or it publishes nothing. */
  looks(machine: string): Promise<MachineLooks | null> {
    return readLooks(this.#store, machine);
  }

  /** What the supervisor of a machine last saw of one of its processes; undefined without a valid look. */
  async look(machine: string, process: string): Promise<ProcessLook | ProcessEnd | undefined> {
    return lookAt(await this.looks(machine), ({ name }) => name === process);
  }

  /** Calls `listener` after each change, and when a change may have been missed. Resolves to a function that removes the listener. */
  onChange(listener: () => void): Promise<() => void> {
    return this.#channels.listen(this.#store.keys.machinesChannel, { message: listener, resumed: listener });
  }
}

/** The same as `Machines.looks`. */
export async function readLooks(store: Store, machine: string): Promise<MachineLooks | null> {
  const text = await store.call((redis) => redis.get(store.keys.machineLooks(machine)));
  return text === null ? null : parse<MachineLooks>(text);
}

/** The same list as `Machines.list`. */
export async function listMachines(store: Store): Promise<MachineInfo[]> {
  const { keys } = store;
  const names = await store.call((redis) => redis.smembers(keys.machines));
  if (names.length === 0) return [];
  const readKeys = names.flatMap((name) => [keys.machine(name), keys.machineLease(name)]);
  const values = await store.call((redis) => redis.mget(readKeys));
  const machines = names.flatMap((_, i) => {
    const [text, leaseHolder] = values.slice(2 * i, 2 * i + 2);
    if (typeof text !== 'string') return [];
    const machine = parse<Omit<MachineInfo, 'alive'>>(text);
    return [{ ...machine, alive: leaseHolder === machine.life }];
  });
  // The descriptions of these machines have expired. A machine that has returned meanwhile adds its name again at its next renewal.
  const expiredNames = names.filter((_, i) => values[2 * i] === null);
  if (expiredNames.length > 0) await store.call((redis) => redis.srem(keys.machines, expiredNames));
  return machines.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
}

/**
 * The notice of a machine's removal on the machines' channel. Its supervisor may learn of the removal only from this notice: the machine's Redis user
 * may be deleted before the next renewal of the lease could report the removal.
 */
export const removalNotice = (machine: string): string => `removed ${machine}`;

/** Fingerprints of the certificates of machines that an operator has removed. */
export function removedCertificates(store: Store): Promise<string[]> {
  return store.call((redis) => redis.smembers(store.keys.removedMachines));
}

/** True for the path of a unix socket, false for `host:port`. */
const isSocketPath = (address: string): boolean => !/^(?:tcp:\/\/)?[^/]*:\d+$/.test(address);

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of a machine is not JSON.', { cause });
  }
}
