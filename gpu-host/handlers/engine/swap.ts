import { tmpdir } from 'node:os';
import type { Logger } from '#scheduler/policies/logger.ts';
import { SwapStore } from '../../memory/swap/store.ts';
import type { HostedModel } from './model.ts';

/** The store for a model's swapped-out pages; undefined when the model was given no room for one page. */
export function openSwap(model: HostedModel, log: Logger): SwapStore | undefined {
  const { backend, swapMemoryBytes = 0, swapDiskBytes = 0, openSwapFile, kv } = model;
  if (swapMemoryBytes + swapDiskBytes < backend.pageBytes) return undefined;
  return new SwapStore({
    pageBytes: backend.pageBytes,
    memoryBytes: swapMemoryBytes,
    diskBytes: swapDiskBytes,
    ...(backend.allocatePinned && { allocate: (bytes) => backend.allocatePinned?.(bytes) }),
    ...(backend.settlePages && { settle: () => backend.settlePages?.() }),
    ...(backend.pagesSettled && { settled: async () => backend.pagesSettled?.() }),
    directory: kv?.directory ?? tmpdir(),
    report: (problem) => log.error({ model: model.name, problem }, 'swap fails'),
    ...(openSwapFile && { openFile: openSwapFile }),
  });
}
