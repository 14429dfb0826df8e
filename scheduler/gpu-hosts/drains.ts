import { randomUUID } from 'node:crypto';
import type { Channels } from '../store/channels.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const DRAIN = loadScript(new URL('./drains.lua', import.meta.url), 'drain');
const DRAIN_MACHINE = loadScript(new URL('./drains.lua', import.meta.url), 'drain-machine');
const UNDRAIN = loadScript(new URL('./drains.lua', import.meta.url), 'undrain');

/** `unchanged`: already drained. `unknown`: no living runtime knows the host. `last`: no other host would take new invocations. */
export type DrainOutcome = 'drained' | 'unchanged' | 'unknown' | 'last';

const OUTCOMES: ReadonlyMap<unknown, DrainOutcome> = new Map<unknown, DrainOutcome>([
  [1, 'drained'],
  [2, 'unchanged'],
  [0, 'unknown'],
  [-1, 'last'],
]);

/** A machine's entry among the drained names; no GPU host has such a name. */
export const machineEntry = (machine: string): string => `machine/${machine}`;

/**
 * Drained GPU hosts, by their names in the configuration, and drained machines. They take no new invocations until undrained; running ones
 * continue.
 */
export class Drains {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  async names(): Promise<ReadonlySet<string>> {
    return new Set(await this.#store.call((redis) => redis.hkeys(this.#store.keys.drained)));
  }

  /** @param by id of the API key that requested the drain; `force`: drain even the last connected host */
  async drain(name: string, { by, force }: { readonly by: string; readonly force: boolean }): Promise<DrainOutcome> {
    const { keys, clock } = this.#store;
    const note = JSON.stringify({ by, at: clock() });
    const args = [keys.prefix, name, force ? '1' : '0', note, machineEntry('')];
    const reply = await this.#store.script(DRAIN, this.#keys(), args);
    return OUTCOMES.get(reply) ?? 'unknown';
  }

  /** Drains a machine with its GPU hosts. @param force drain it even if no other GPU host would take new invocations */
  async drainMachine(
    { name, gpuHosts }: { readonly name: string; readonly gpuHosts: readonly { readonly name: string }[] },
    { by, force }: { readonly by: string; readonly force: boolean },
  ): Promise<DrainOutcome> {
    const { keys, clock } = this.#store;
    const note = JSON.stringify({ by, at: clock() });
    const hosts = gpuHosts.map((host) => host.name);
    const args = [keys.prefix, name, machineEntry(name), force ? '1' : '0', note, ...hosts];
    const reply = await this.#store.script(DRAIN_MACHINE, this.#keys(), args);
    return OUTCOMES.get(reply) ?? 'unknown';
  }

  /** Ends the drain of a machine and of its GPU hosts. Returns true when the machine was drained. */
  async undrainMachine(machine: {
    readonly name: string;
    readonly gpuHosts: readonly { readonly name: string }[];
  }): Promise<boolean> {
    for (const { name } of machine.gpuHosts) await this.undrain(name);
    return this.undrain(machineEntry(machine.name));
  }

  /** Ends the drain of a GPU host, or of a machine by its `machineEntry`. Returns true when it was drained. */
  async undrain(name: string): Promise<boolean> {
    const { keys } = this.#store;
    const scriptKeys = [keys.drained, keys.drainedChannel, keys.reply(randomUUID())];
    return (await this.#store.script(UNDRAIN, scriptKeys, [name])) === 1;
  }

  /** Calls back after a change, or when a change may have been missed. Resolves to a function that stops the calls. */
  onChange(listener: () => void): Promise<() => void> {
    return this.#channels.listen(this.#store.keys.drainedChannel, { message: listener, resumed: listener });
  }

  #keys(): string[] {
    const { keys } = this.#store;
    return [keys.drained, keys.runtimes, keys.drainedChannel, keys.reply(randomUUID())];
  }
}
