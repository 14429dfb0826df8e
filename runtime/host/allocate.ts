import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Said of a queue without a model, whose every other call fails. */
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
  ): void => device?.copySlots(id, source, sourceOffset, destination, destinationOffset, count),

  'copy-embeds': (
    _inferlet: Inferlet,
    { device, id }: DeviceQueue,
    sources: Uint32Array,
    destinations: Uint32Array,
  ): void => device?.copyEmbeds(id, sources, destinations),
};
