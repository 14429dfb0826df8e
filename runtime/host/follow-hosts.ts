import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { AdmissionWorker } from '#scheduler/admission/worker.ts';
import type { Drains } from '#scheduler/gpu-hosts/drains.ts';
import type { Draining } from './draining.ts';

export interface FollowedHosts {
  readonly connections: readonly Pick<GpuHostConnection, 'name' | 'connected' | 'onReady' | 'onLost'>[];
  readonly draining: Draining;
  readonly drains: Pick<Drains, 'names' | 'onChange'>;
  readonly worker: Pick<AdmissionWorker, 'pause'>;
  /** Says what the hosts are now: the platform's capacity follows. */
  readonly describe: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

const RETRY_MS = 1000;

/**
 * Keeps up with the GPU hosts: one may come back with other models or more pages, go away, be drained and taken back. While drained ones are all that is
 * left, the runtime takes nothing more: what comes waits in line. Answers how to stop it.
 */
export async function followHosts(followed: FollowedHosts): Promise<() => void> {
  const { connections, draining, drains, worker, describe, onError } = followed;
  let retry: NodeJS.Timeout | undefined;
  let stopped = false;

  const say = async (): Promise<void> => {
    const drained = connections.filter(({ name }) => draining.isDrained(name));
    const open = connections.some((connection) => connection.connected && !drained.includes(connection));
    // Before it says so: whoever hears that a host is drained may rely on it.
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
  // Something may have happened before anybody listened.
  await read();
  return () => {
    stopped = true;
    clearTimeout(retry);
    for (const cleanup of cleanups) cleanup();
  };
}
