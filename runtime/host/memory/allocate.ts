import type { ExportInfo, Imported, Residency, Tier } from '#gpu-host/protocol/calls.ts';
import { err, type Outcome, refuseName } from '#gpu-host/protocol/errors.ts';
import type { ExportControl } from '#gpu-host/protocol/operations.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { makeDurable } from './durable-names.ts';
import { atOwner, bring, listNames, noteSave, removeName } from './named-pages.ts';
import type { Side } from './other-hosts.ts';

/** Page size of a queue without a model; every other call on such a queue fails. */
const NO_PAGE_SIZE = 0;

const unexport =
  (name: string) =>
  ({ device, queue }: Side): Promise<Outcome<undefined>> =>
    device.ask(queue, { op: 'unexport', name });

/** Makes a call about the residency of an export at the GPU host that has its pages. */
const control = (inferlet: Inferlet, queue: DeviceQueue, operation: ExportControl): Promise<Outcome<Residency>> => {
  const { name } = operation;
  const refused = refuseName(name);
  if (refused) return Promise.resolve(err(refused));
  return atOwner({ inferlet, queue, kind: 'export', name }, (side) => side.device.ask(side.queue, operation));
};

/** Implements `wit/allocate.wit`, except the calls that `passed` of `queue.ts` makes. */
export const allocate = {
  'page-size': (_inferlet: Inferlet, { model }: DeviceQueue): number => model?.summary.pageSize ?? NO_PAGE_SIZE,

  'allocate-pages': (inferlet: Inferlet, queue: DeviceQueue, count: number): Outcome<Uint32Array> => {
    const { device } = queue;
    if (!device) return queue.refusal();
    const outcome = device.allocatePages(queue.id, count);
    inferlet.observePages(queue);
    return outcome;
  },

  'free-pages': (_inferlet: Inferlet, { device, id }: DeviceQueue, pages: Uint32Array): void =>
    device?.freePages(id, pages),

  'allocate-embeds': (_inferlet: Inferlet, queue: DeviceQueue, count: number): Outcome<Uint32Array> =>
    queue.device ? queue.device.allocateEmbeds(queue.id, count) : queue.refusal(),

  'free-embeds': (_inferlet: Inferlet, { device, id }: DeviceQueue, embeds: Uint32Array): void =>
    device?.freeEmbeds(id, embeds),

  'share-pages': (_inferlet: Inferlet, queue: DeviceQueue, pages: Uint32Array): Outcome<Uint32Array> =>
    queue.device ? queue.device.sharePages(queue.id, pages) : queue.refusal(),

  'import-pages': async (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<Imported>> => {
    const refused = refuseName(name);
    if (refused) return err(refused);
    const used = { inferlet, queue, kind: 'export', name } as const;
    // `false`: an import does not write, so it takes no lock.
    const outcome = await bring(used, false, (side) => side.device.importPages(side.queue, name));
    inferlet.observePages(queue);
    return outcome;
  },

  'export-pages': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    pages: Uint32Array,
    name: string,
    persistent: boolean,
  ): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const { device } = queue;
    if (!device) return Promise.resolve(queue.refusal());
    // Send the call at once: its place among the queue's calls decides what the snapshot contains.
    const saved = device.ask(queue.id, { op: 'export-pages', pages, name, persistent });
    return noteSave({ inferlet, queue, kind: 'export', name }, persistent, saved, unexport(name));
  },

  unexport: (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    return removeName({ inferlet, queue, kind: 'export', name }, unexport(name));
  },

  'make-durable': (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    return makeDurable({ inferlet, queue, kind: 'export', name }, (side) => side.device.importPages(side.queue, name));
  },

  'list-exports': (inferlet: Inferlet, queue: DeviceQueue): Promise<Outcome<readonly ExportInfo[]>> =>
    listNames(
      { inferlet, queue, kind: 'export' },
      (side) => side.device.ask(side.queue, { op: 'list-exports' }),
      // A durable copy outlives its GPU host, so it is listed as persistent.
      (name, { pages, tokens, nextPosition }) => ({ name, pages, tokens, nextPosition, persistent: true }),
    ),

  'export-residency': (inferlet: Inferlet, queue: DeviceQueue, name: string) =>
    control(inferlet, queue, { op: 'export-residency', name }),

  'pin-export': (inferlet: Inferlet, queue: DeviceQueue, name: string, leaseMs: number) =>
    control(inferlet, queue, { op: 'pin-export', name, leaseMs }),

  'unpin-export': (inferlet: Inferlet, queue: DeviceQueue, name: string) =>
    control(inferlet, queue, { op: 'unpin-export', name }),

  'retain-export': (inferlet: Inferlet, queue: DeviceQueue, name: string, nextUseMs: number) =>
    control(inferlet, queue, { op: 'retain-export', name, nextUseMs }),

  'prefetch-export': (inferlet: Inferlet, queue: DeviceQueue, name: string) =>
    control(inferlet, queue, { op: 'prefetch-export', name }),

  'demote-export': (inferlet: Inferlet, queue: DeviceQueue, name: string, tier: Tier) =>
    control(inferlet, queue, { op: 'demote-export', name, tier }),
};
