/** Takes memory from other tenants, with next to no tokens. For tests and benchmarks of the tenants' shares. */
import { Context, defineInferlet, receive, send } from '@pie/inferlet';
import { allocate, fused, Queue, runtime, settle } from '@pie/inferlet/raw';

interface Input {
  readonly model: string;
  /**
   * `hold`: fills pages with copies of one and waits for a message, so that they may go to swap. `spin`: the same, but goes on computing with them.
   * `churn`: allocates and frees the pages without a pause. `flood`: computes texts that fill the prefix cache. `compute`: computes texts of the same
   * length that the cache does not take, and frees their pages.
   */
  readonly mode: 'hold' | 'spin' | 'churn' | 'flood' | 'compute';
  /** Pages; for `flood`, the number of different texts. */
  readonly pages: number;
  /** Time after which `spin`, `churn`, `flood` and `compute` end, ms. */
  readonly forMs: number;
}

/** Pages that one call allocates. */
const PART = 50;
/** Tokens of one text of a flood, or of its like that the cache does not take. */
const TEXT_TOKENS = 160;

export const run = defineInferlet(async ({ model, mode, pages, forMs }: Input) => {
  const untilMs = runtime.now() + forMs;
  let rounds = 0;
  if (mode === 'flood') {
    await send('begun');
    for (; runtime.now() < untilMs; rounds++) {
      using context = new Context({ model });
      const salt = rounds % pages;
      context.fill(Array.from({ length: TEXT_TOKENS }, (_, i) => 5 + ((i * 7 + salt * 13) % 900)));
      await context.flush();
    }
    return { rounds };
  }
  using queue = new Queue(model);
  if (mode === 'churn') {
    await send('begun');
    for (; runtime.now() < untilMs; rounds++) {
      allocate.freePages(queue, allocate.allocatePages(queue, pages));
      await settle(queue.synchronize());
    }
    return { rounds };
  }
  const pageSize = allocate.pageSize(queue);
  if (mode === 'compute') {
    await send('begun');
    for (; runtime.now() < untilMs; rounds++) {
      const outPages = allocate.allocatePages(queue, pages);
      const tokens = Array.from({ length: TEXT_TOKENS }, (_, i) => 5 + ((i * 7 + rounds * 13) % 900));
      // The cache takes only texts whose first token is at position 0.
      const positions = tokens.map((_, i) => i + 1);
      await settle(fused.step(queue, { tokens, positions, inPages: [], outPages, rows: 0, output: { tag: 'none' } }));
      allocate.freePages(queue, outPages);
    }
    return { rounds };
  }
  const [seed = 0] = allocate.allocatePages(queue, 1);
  const positions = Array.from({ length: pageSize }, (_, i) => i);
  const tokens = positions.map((i) => i + 5);
  const step = { tokens, positions, inPages: [], outPages: [seed], rows: 0, output: { tag: 'none' } } as const;
  await settle(fused.step(queue, step));
  for (let filled = 1; filled < pages; filled += PART) {
    for (const page of allocate.allocatePages(queue, Math.min(PART, pages - filled)))
      allocate.copySlots(queue, seed, 0, page, 0, pageSize, 0);
    await settle(queue.synchronize());
  }
  await send('begun');
  if (mode === 'hold') await receive();
  else {
    const probe = { tokens: [7], positions: [pageSize], inPages: [seed], outPages: [], rows: 1 } as const;
    for (; runtime.now() < untilMs; rounds++) await settle(fused.step(queue, { ...probe, output: { tag: 'none' } }));
  }
  return { rounds };
});
