import { isDrained } from '#scheduler/policies/placement.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { GpuHostState } from '../app/control.ts';

/**
 * Lists each GPU host once, although every runtime that uses the host reports it. A disconnected host appears only when no connected host has
 * its name. A host counts as drained once all its runtimes know of the drain.
 */
export function gpuHostsOf(runtimes: readonly RuntimeInfo[]): GpuHostState[] {
  const aliveRuntimes = runtimes.filter((runtime) => runtime.alive);
  const reportedHosts = aliveRuntimes.flatMap(({ gpuHosts = [] }) => gpuHosts);
  const hosts = new Map<string, RuntimeGpuHost>();
  for (const host of reportedHosts) if (host.connected) hosts.set(`${host.name} ${host.hostId}`, host);
  const connectedNames = new Set([...hosts.values()].map(({ name }) => name));
  for (const host of reportedHosts) if (!connectedNames.has(host.name)) hosts.set(host.name, host);
  const sortedHosts = [...hosts.values()].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  return sortedHosts.map(({ name, connected, models }) => ({
    name,
    connected,
    drained: reportedHosts.every((host) => host.name !== name || isDrained(host)),
    running: aliveRuntimes.reduce((sum, { load }) => sum + runningOn(name, load), 0),
    models: models.map(({ name: model, backend, precision, kv, device, reason, pageCount, pageSize }) => ({
      model,
      backend,
      precision,
      kv: kv ?? null,
      reason: reason ?? null,
      device: device.name,
      deviceIndex: device.index ?? null,
      memory: device.memory ?? null,
      pages: pageCount,
      pageSize,
    })),
  }));
}

/** Number of a runtime's running invocations that the GPU host of this name serves. */
export function runningOn(name: string, load: RuntimeInfo['load']): number {
  const runningByHost = load?.gpuHosts;
  return runningByHost !== undefined && Object.hasOwn(runningByHost, name) ? (runningByHost[name] ?? 0) : 0;
}
