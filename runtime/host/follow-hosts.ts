import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { AdmissionWorker } from '#scheduler/admission/worker.ts';
import type { Drains } from '#scheduler/gpu-hosts/drains.ts';
import type { Draining } from './draining.ts';

export interface FollowedHosts {
  readonly connections: readonly Pick<GpuHostConnection, 'name' | 'connected' | 'onReady' | 'onLost'>[];
  readonly draining: Draining;
  readonly drains: Pick<Drains, 'names' | 'onChange'>;
  readonly worker: Pick<AdmissionWorker, 'pause'>;
  /** Publishes the state of the hosts: the platform's capacity depends on it. */
  readonly describe: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

const RETRY_MS = 1000;

/**
 * Follows the GPU hosts: a host may return with other models or more pages, disconnect, be drained, or be put back in service. While only
 * drained hosts are connected, the runtime takes no invocations: they wait in line. Answers a function that stops it.
 */
export async function followHosts(followed: FollowedHosts): Promise<() => void> {
  const { connections, draining, drains, worker, describe, onError } = followed;
  let retry: NodeJS.Timeout | undefined;
  let stopped = false;

  const say = async (): Promise<void> => {
    const drained = connections.filter(({ name }) => draining.isDrained(name));
    const open = connections.some((connection) => connection.connected && !drained.includes(connection));
    // Pause first: a reader that sees a host as drained relies on the pause.
    await worker.pause(drained.length > 0 && !open);
    await describe();
  };
  const read = async (): Promise<void> => {
    clearTimeout(retry);
    try {
      draining.set(await drains.names(), Date.now());
      await say();
    } catch (error) {
      if (stopped) return;
      onError(error);
      retry = setTimeout(() => void read(), RETRY_MS);
    }
  };

  const follow = () => void read();
  const cleanups = [
    await drains.onChange(follow),
    ...connections.flatMap((connection) => [connection.onReady(follow), connection.onLost(follow)]),
  ];
  // A host may have changed before the listeners were registered.
  await read();
  return () => {
    stopped = true;
    clearTimeout(retry);
    for (const cleanup of cleanups) cleanup();
  };
}
