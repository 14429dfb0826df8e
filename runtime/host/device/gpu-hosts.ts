import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { AdmissionWorker } from '#scheduler/admission/worker.ts';
import { type Drains, machineEntry } from '#scheduler/gpu-hosts/drains.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Drain, RuntimeGpuHost } from '#scheduler/runtimes/types.ts';
import { retrying } from '#scheduler/store/connection.ts';

/** The fields of a GPU host's connection that describe the host. */
export type HostSource = Pick<GpuHostConnection, 'name' | 'connected' | 'connectedAt' | 'lostAt' | 'hostId' | 'models'>;

/** Describes a runtime's GPU hosts, in configuration order. A host that is away has the models that it last had. */
export function describeHosts(hosts: readonly HostSource[], draining = new Draining()): RuntimeGpuHost[] {
  return hosts.map(({ name, connected, connectedAt, lostAt, hostId, models }) => ({
    name,
    connected,
    ...(connectedAt !== undefined && { connectedAt }),
    ...(!connected && lostAt !== undefined && { lostAt }),
    ...drainOf(draining, name),
    ...(hostId !== undefined && { hostId }),
    models: models.map((model) => {
      const { backend, precision, kv, device, reason, pageSize, pageCount } = model;
      const told = { ...(kv !== undefined && { kv }), ...(reason !== undefined && { reason }) };
      const compute = { backend, precision, ...told, device };
      return { name: model.name, ...compute, pageSize, pageCount };
    }),
  }));
}

function drainOf(draining: Draining, name: string): { readonly drain?: Drain } {
  const drain = draining.of(name);
  return drain === undefined ? {} : { drain };
}

/** A moment by two clocks of this process. */
export interface Moment {
  /** Milliseconds since the Unix epoch. The clock may step. */
  readonly at: number;
  /** Milliseconds by `performance.now`, which never steps. */
  readonly steadyMs: number;
}

interface Drained {
  readonly since: Moment;
  readonly until?: Moment;
}

/** The last drain of each GPU host, timed by this runtime's clocks, because this runtime chooses the host of each invocation. */
export class Draining {
  readonly #drains = new Map<string, Drained>();

  /** Sets the names of the hosts that are drained now. */
  set(names: ReadonlySet<string>, now: Moment = { at: Date.now(), steadyMs: performance.now() }): void {
    for (const name of names) if (!this.isDrained(name)) this.#drains.set(name, { since: now });
    for (const [name, { since, until }] of this.#drains)
      if (until === undefined && !names.has(name)) this.#drains.set(name, { since, until: now });
  }

  /** The host's last drain, for readers in other processes: milliseconds since the Unix epoch. */
  of(name: string): Drain | undefined {
    return this.#by('at', name);
  }

  /** The host's last drain, by `performance.now`. */
  steadyOf(name: string): Drain | undefined {
    return this.#by('steadyMs', name);
  }

  isDrained(name: string): boolean {
    const drain = this.#drains.get(name);
    return drain !== undefined && drain.until === undefined;
  }

  #by(clock: keyof Moment, name: string): Drain | undefined {
    const drain = this.#drains.get(name);
    if (!drain) return undefined;
    const { since, until } = drain;
    return { since: since[clock], ...(until && { until: until[clock] }) };
  }
}

export interface FollowedHosts {
  readonly hosts: {
    readonly list: readonly Pick<GpuHostConnection, 'name' | 'connected'>[];
    onChange(listener: () => void): () => void;
  };
  readonly draining: Draining;
  readonly drains: Pick<Drains, 'names' | 'onChange'>;
  /** The machine of this runtime, which may be drained as a whole. */
  readonly machine?: string | undefined;
  readonly worker: Pick<AdmissionWorker, 'pause'>;
  /** True when runtimes of other machines can take the invocations that this one leaves in the queue. */
  readonly sharesWork?: boolean;
  /** Publishes the state of the hosts: the platform's capacity depends on it. */
  readonly describe: () => Promise<void>;
  readonly log: Logger;
}

/**
 * Follows the GPU hosts: a host may come, return with other models or more pages, disconnect, go, be drained, or be put back in service.
 * Resolves to a function that ends this. The runtime takes no invocations, which then wait in the queue,
 * - while its own machine is drained;
 * - while a host is drained and no undrained host is connected;
 * - while no undrained host is connected, if the runtime shares the work with others: its invocations would fail at once, and it would go on
 *   taking invocations that the others could run.
 */
export async function followHosts(followed: FollowedHosts): Promise<() => void> {
  const { hosts, draining, drains, machine, worker, sharesWork = false, describe, log } = followed;
  const pauseAndDescribe = async (): Promise<void> => {
    const drained = hosts.list.filter(({ name }) => draining.isDrained(name));
    const hasOpenHost = hosts.list.some((connection) => connection.connected && !drained.includes(connection));
    // Pause first: a reader that sees a host as drained relies on the pause.
    const isLeaving = machine !== undefined && draining.isDrained(machineEntry(machine));
    await worker.pause(isLeaving || (!hasOpenHost && (sharesWork || drained.length > 0)));
    await describe();
  };
  const reading = retrying(
    async () => {
      draining.set(await drains.names());
      await pauseAndDescribe();
    },
    (error) => log.warn({ error }, 'the state of the GPU hosts could not be published'),
  );
  const cleanups = [await drains.onChange(reading.run), hosts.onChange(reading.run)];
  // A host may have changed before the listeners were registered.
  await reading.run();
  return () => {
    reading.stop();
    for (const cleanup of cleanups) cleanup();
  };
}
