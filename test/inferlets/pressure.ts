/** Takes memory, computes, waits and computes again. For tests of memory pressure: swap, termination and oversubscription. */
import { Context, defineInferlet, model, receive, send } from '@pie/inferlet';
import { allocate, fused, Queue, settle } from '@pie/inferlet/raw';

interface Input {
  /** KV pages to fill and keep. */
  readonly pages: number;
  /** Tokens to generate before the wait, and again after the wait. */
  readonly tokens: number;
  /** True to wait for a message between the two generations. The GPU host may swap the pages out meanwhile. */
  readonly hold?: boolean;
  readonly prompt?: string;
}

/** Maximum tokens of one call; a prefill of many pages takes several calls. */
const CHUNK = 256;

export const run = defineInferlet(async ({ pages, tokens, hold = false, prompt = 'Once upon a time' }: Input) => {
  const { name, pageSize, vocabularySize, contextLength } = model();
  using queue = new Queue(name);
  const filledPages = pages > 0 ? allocate.allocatePages(queue, pages) : [];
  // Each group of pages is a separate text, so that no text exceeds the model's context.
  const pagesOfText = Math.max(1, Math.floor(Math.min(CHUNK, contextLength) / pageSize));
  for (let first = 0; first < pages; first += pagesOfText) {
    const outPages = filledPages.slice(first, first + pagesOfText);
    const positions = Array.from({ length: outPages.length * pageSize }, (_, i) => i);
    const filler = positions.map((i) => (i * 31 + first * 7 + 5) % vocabularySize);
    const request = { tokens: filler, positions, inPages: [], outPages, rows: 0, output: { tag: 'none' } } as const;
    await settle(fused.step(queue, request));
  }
  using context = new Context();
  context.fill(prompt);
  const before = await context.generate({ maxTokens: tokens, ignoreEos: true }).collect();
  const probe = filledPages.length > 0 ? await probePage(queue, filledPages.slice(0, 1), pageSize) : [];
  if (hold) {
    await send('holding');
    await receive();
  }
  const after = await context.generate({ maxTokens: tokens, ignoreEos: true }).collect();
  // The pages must hold the same content as before the wait. `change` need not be exactly 0, as other sequences in a batch change the rounding.
  const probeAfter = filledPages.length > 0 ? await probePage(queue, filledPages.slice(0, 1), pageSize) : [];
  const change = Math.max(0, ...probe.map((value, i) => Math.abs(value - (probeAfter[i] ?? Number.POSITIVE_INFINITY))));
  return { tokens: [...before.tokens, ...after.tokens], change, pages: filledPages.length };
});

/** Log-probabilities after a token that attends to the page. They depend on the content of the page. */
async function probePage(queue: Queue, inPages: readonly number[], pageSize: number): Promise<number[]> {
  const output = { tag: 'distributions', val: 8 } as const;
  const request = { tokens: [1], positions: [pageSize], inPages, outPages: [], rows: 1, output };
  const { distributions } = await settle(fused.step(queue, request));
  return Array.from(distributions[0]?.logProbabilities ?? []);
}
