import type { Imported } from '#gpu-host/protocol/calls.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Page size of a queue without a model; every other call on such a queue fails. */
const NO_PAGE_SIZE = 0;

/** `wit/allocate.wit`, but for the calls that `passed.ts` makes. */
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

  'import-pages': async (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Imported>> => {
    const { device } = queue;
    if (!device) return queue.refusal();
    const outcome = await device.importPages(queue.id, name);
    inferlet.observePages(queue.name, device.heldPages);
    return outcome;
  },
};
