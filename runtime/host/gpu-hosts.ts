import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { RuntimeGpuHost } from '#scheduler/runtimes/types.ts';

/** A GPU host, as what it is is read. */
export type HostSource = Pick<GpuHostConnection, 'connected' | 'hostId' | 'models'>;

/** What a runtime's GPU hosts are, in the order of the configuration; one that is away is what it was when it was last there. */
export function describeHosts(hosts: readonly HostSource[], names: readonly string[]): RuntimeGpuHost[] {
  return hosts.map(({ connected, hostId, models }, i) => ({
    name: names[i] ?? '',
    connected,
    ...(hostId !== undefined && { hostId }),
    models: models.map(({ name, backend, precision, kv, device, pageSize, pageCount }) => ({
      ...{ name, backend, precision, ...(kv !== undefined && { kv }), device },
      ...{ pageSize, pageCount },
    })),
  }));
}
