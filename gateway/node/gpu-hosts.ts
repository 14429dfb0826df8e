import { isDrained } from '#scheduler/policies/placement.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { GpuHostState } from '../app/resources/operations.ts';

/**
 * Lists each GPU host once, although every runtime that uses it reports it. A disconnected host appears only when no connected host has
 * its name. A host counts as drained once all its runtimes know of the drain.
 */
export function gpuHostsOf(runtimes: readonly RuntimeInfo[]): GpuHostState[] {
  const alive = runtimes.filter((runtime) => runtime.alive);
  const told = alive.flatMap(({ gpuHosts = [] }) => gpuHosts);
  const hosts = new Map<string, RuntimeGpuHost>();
  for (const host of told) if (host.connected) hosts.set(`${host.name} ${host.hostId}`, host);
  const there = new Set([...hosts.values()].map(({ name }) => name));
  for (const host of told) if (!there.has(host.name)) hosts.set(host.name, host);
  const inOrder = [...hosts.values()].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  return inOrder.map(({ name, connected, models }) => ({
    ...{ name, connected },
    drained: told.every((host) => host.name !== name || isDrained(host)),
    running: alive.reduce((sum, { load }) => sum + runningOn(name, load), 0),
    models: models.map(({ name: model, backend, precision, kv, device, pageCount, pageSize }) => ({
      ...{ model, backend, precision, kv: kv ?? null },
      ...{ device: device.name, deviceIndex: device.index ?? null, memory: device.memory ?? null },
      ...{ pages: pageCount, pageSize },
    })),
  }));
}

function runningOn(name: string, load: RuntimeInfo['load']): number {
  const running = load?.gpuHosts;
  return running !== undefined && Object.hasOwn(running, name) ? (running[name] ?? 0) : 0;
}
