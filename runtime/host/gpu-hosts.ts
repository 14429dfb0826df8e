import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Drain, RuntimeGpuHost } from '#scheduler/runtimes/types.ts';
import { Draining } from './draining.ts';

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
      const { backend, precision, kv, device, pageSize, pageCount } = model;
      const compute = { backend, precision, ...(kv !== undefined && { kv }), device };
      return { name: model.name, ...compute, pageSize, pageCount };
    }),
  }));
}

function drainOf(draining: Draining, name: string): { readonly drain?: Drain } {
  const drain = draining.of(name);
  return drain === undefined ? {} : { drain };
}
