import type { ExportInfo, Imported, Tier } from '#gpu-host/protocol/calls.ts';
import type { GpuInferlet } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { ExportControl } from '#gpu-host/protocol/operations.ts';
import type { Residency } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Page size of a queue without a model; every other call on such a queue fails. */
const NO_PAGE_SIZE = 0;

/** `wit/allocate.wit`. */
export const allocate = {
  'page-size': (_inferlet: Inferlet, { model }: DeviceQueue): number => model?.summary.pageSize ?? NO_PAGE_SIZE,

  'allocate-pages': (inferlet: Inferlet, queue: DeviceQueue, count: number): Outcome<Uint32Array> => {
    const { device } = queue;
    if (!device) return queue.refusal();
    const outcome = device.allocatePages(queue.id, count);
    inferlet.observePages(queue.name, device.heldPages);
    return outcome;
  },

  'free-pages': (_inferlet: Inferlet, { device, id }: DeviceQueue, pages: Uint32Array): void =>
    device?.freePages(id, pages),

  'allocate-embeds': (_inferlet: Inferlet, queue: DeviceQueue, count: number): Outcome<Uint32Array> =>
    queue.device ? queue.device.allocateEmbeds(queue.id, count) : queue.refusal(),

  'free-embeds': (_inferlet: Inferlet, { device, id }: DeviceQueue, embeds: Uint32Array): void =>
    device?.freeEmbeds(id, embeds),

  'share-pages': (inferlet: Inferlet, queue: DeviceQueue, pages: Uint32Array): Outcome<Uint32Array> => {
    const { device } = queue;
    if (!device) return queue.refusal();
    const outcome = device.sharePages(queue.id, pages);
    inferlet.observePages(queue.name, device.heldPages);
    return outcome;
  },

  'copy-slots': (
    _inferlet: Inferlet,
    { device, id }: DeviceQueue,
    source: number,
    sourceOffset: number,
    destination: number,
    destinationOffset: number,
    count: number,
    shift: number,
  ): void => device?.copySlots(id, source, sourceOffset, destination, destinationOffset, count, shift),

  'copy-tokens': (
    _inferlet: Inferlet,
    { device, id }: DeviceQueue,
    sources: Uint32Array,
    indices: Uint32Array,
    destinations: Uint32Array,
    positions: Uint32Array,
  ): void => device?.copyTokens(id, sources, indices, destinations, positions),

  'copy-embeds': (
    _inferlet: Inferlet,
    { device, id }: DeviceQueue,
    sources: Uint32Array,
    destinations: Uint32Array,
  ): void => device?.copyEmbeds(id, sources, destinations),

  'export-pages': (
    _inferlet: Inferlet,
    queue: DeviceQueue,
    pages: Uint32Array,
    name: string,
    persistent: boolean,
  ): Promise<Outcome<undefined>> => ask(queue, (device) => device.exportPages(queue.id, pages, name, persistent)),

  'import-pages': async (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Imported>> => {
    const outcome = await ask(queue, (device) => device.importPages(queue.id, name));
    if (queue.device) inferlet.observePages(queue.name, queue.device.heldPages);
    return outcome;
  },

  unexport: (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> =>
    ask(queue, (device) => device.unexport(queue.id, name)),

  'list-exports': (_inferlet: Inferlet, queue: DeviceQueue): Promise<Outcome<readonly ExportInfo[]>> =>
    ask(queue, (device) => device.listExports(queue.id)),

  'export-residency': (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Residency>> =>
    control(queue, { op: 'export-residency', name }),

  'pin-export': (_inferlet: Inferlet, queue: DeviceQueue, name: string, leaseMs: number): Promise<Outcome<Residency>> =>
    control(queue, { op: 'pin-export', name, leaseMs }),

  'unpin-export': (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Residency>> =>
    control(queue, { op: 'unpin-export', name }),

  'retain-export': (
    _inferlet: Inferlet,
    queue: DeviceQueue,
    name: string,
    nextUseMs: number,
  ): Promise<Outcome<Residency>> => control(queue, { op: 'retain-export', name, nextUseMs }),

  'prefetch-export': (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Residency>> =>
    control(queue, { op: 'prefetch-export', name }),

  'demote-export': (_inferlet: Inferlet, queue: DeviceQueue, name: string, tier: Tier): Promise<Outcome<Residency>> =>
    control(queue, { op: 'demote-export', name, tier }),
};

async function control(queue: DeviceQueue, operation: ExportControl): Promise<Outcome<Residency>> {
  const outcome = await ask(queue, (device) => device.controlExport(queue.id, operation));
  return outcome.tag === 'ok' ? { tag: 'ok', val: { ...outcome.val, bytes: BigInt(outcome.val.bytes) } } : outcome;
}

function ask<T>(queue: DeviceQueue, call: (device: GpuInferlet) => Promise<Outcome<T>>): Promise<Outcome<T>> {
  return queue.device ? call(queue.device) : Promise.resolve(queue.refusal());
}
