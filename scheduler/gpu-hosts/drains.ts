import type { Channels } from '../store/channels.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';

const DRAIN = loadScript(new URL('./scripts/drain.lua', import.meta.url));
const UNDRAIN = loadScript(new URL('./scripts/undrain.lua', import.meta.url));

/** `unchanged`: it was before. `unknown`: no living runtime knows a host of that name. `last`: nobody would be left to take what comes. */
export type DrainOutcome = 'drained' | 'unchanged' | 'unknown' | 'last';

const OUTCOMES: ReadonlyMap<unknown, DrainOutcome> = new Map<unknown, DrainOutcome>([
  [1, 'drained'],
  [2, 'unchanged'],
  [0, 'unknown'],
  [-1, 'last'],
]);

/** GPU hosts that take nothing new, by their names in the configuration; what runs there is not touched. It holds until it is taken back. */
export class Drains {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** Names of the hosts that are drained. */
  async names(): Promise<ReadonlySet<string>> {
    return new Set(await this.#store.call((redis) => redis.hkeys(this.#store.keys.drained)));
  }

  /** @param by id of the key that asked for it; `force`: also the last host that is there */
  async drain(name: string, { by, force }: { readonly by: string; readonly force: boolean }): Promise<DrainOutcome> {
    const { keys, clock } = this.#store;
    const args = [keys.prefix, name, force ? '1' : '0', JSON.stringify({ by, at: clock() })];
    const told = await this.#store.script(DRAIN, [keys.drained, keys.runtimes, keys.drainedChannel], args);
    return OUTCOMES.get(told) ?? 'unknown';
  }

  /** Whether it was drained. */
  async undrain(name: string): Promise<boolean> {
    const { keys } = this.#store;
    return (await this.#store.script(UNDRAIN, [keys.drained, keys.drainedChannel], [name])) === 1;
  }

  /** Calls back after a change, or when one may have been missed. Answers how to stop that. */
  onChange(listener: () => void): Promise<() => void> {
    return this.#channels.listen(this.#store.keys.drainedChannel, { message: listener, resumed: listener });
  }
}
