import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { AdmissionWorker } from '#scheduler/admission/worker.ts';
import { type Drains, machineEntry } from '#scheduler/gpu-hosts/drains.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { retrying } from '#scheduler/store/connection.ts';
import type { Draining } from './draining.ts';

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
