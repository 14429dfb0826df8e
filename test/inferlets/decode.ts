/**
 * Decodes greedily in one of five ways, for `pie bench generate`, `pie bench tax` and `platform-tax.ts`. Fills a context, sends a message when
 * ready, waits for a message, decodes, and reports when decoding began (ms since 1970) and how long it took.
 */
import { allocateEmbeds, allocatePages, pageSize } from 'pie:inferlet/allocate@0.1.0';
import { forward } from 'pie:inferlet/forward@0.1.0';
import { Run, step } from 'pie:inferlet/fused@0.1.0';
import { embedText } from 'pie:inferlet/input-text@0.1.0';
import { nextDistribution } from 'pie:inferlet/output-text@0.1.0';
import { startRun } from 'pie:inferlet/penalties@0.1.0';
import { Queue } from 'pie:inferlet/queue@0.1.0';
import { models, now } from 'pie:inferlet/runtime@0.1.0';
import { receive, send } from 'pie:inferlet/session@0.1.0';
import { GREEDY, unwrap } from './bare.ts';

type Way = 'split' | 'fused' | 'paged' | 'run-ahead' | 'penalties';

export async function run(input: string): Promise<string> {
  const { way, context, steps } = JSON.parse(input) as { way: Way; context: number; steps: number };
  const queue = new Queue(models()[0]?.name ?? '');
  // `paged` allocates the pages of new tokens itself.
  const tokenCapacity = way === 'paged' ? context : context + steps + 1;
  // A typed array crosses the boundary to the host in one copy.
  const pages = Uint32Array.from(allocatePages(queue, Math.ceil(tokenCapacity / pageSize(queue))));
  const prompt = Array.from({ length: context }, (_, i) => (i === 0 ? 1 : 300 + ((i * 37) % 20_000)));
  const filled = await step(queue, {
    tokens: prompt,
    positions: prompt.map((_, i) => i),
    inPages: pages,
    outPages: pages,
    mask: undefined,
    rows: 1,
    output: { tag: 'sample', val: GREEDY },
  }).read();
  const first = unwrap(filled).tokens[0] ?? 0;

  send({ tag: 'text', val: 'ready' });
  unwrap(await receive().read());
  const start = Number(now());
  const tokens = await decode[way](queue, pages, first, context, steps);
  return JSON.stringify({
    startedAt: start,
    elapsedMs: Number(now()) - start,
    tokens: tokens.length,
    checksum: tokens.reduce((a, b) => a ^ b, 0),
  });
}

type Decode = (queue: Queue, pages: Uint32Array, token: number, position: number, steps: number) => Promise<number[]>;

const decode: Record<Way, Decode> = {
  async split(queue, pages, first, context, steps) {
    const [input, output] = allocateEmbeds(queue, 2);
    const tokens: number[] = [];
    let token = first;
    for (let i = 0; i < steps; i++) {
      embedText(queue, [token], [context + i], [input ?? 0]);
      forward(queue, pages, [input ?? 0], pages, [output ?? 0], undefined);
      token = unwrap(await nextDistribution(queue, output ?? 0, 1).read()).tokens[0] ?? 0;
      tokens.push(token);
    }
    return tokens;
  },

  async fused(queue, pages, first, context, steps) {
    const tokens: number[] = [];
    let token = first;
    for (let i = 0; i < steps; i++) {
      const result = await step(queue, {
        tokens: [token],
        positions: [context + i],
        inPages: pages,
        outPages: pages,
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: GREEDY },
      }).read();
      token = unwrap(result).tokens[0] ?? 0;
      tokens.push(token);
    }
    return tokens;
  },

  /** As `fused`, but allocates page by page as the library does, and passes only the filled pages to read and one page to write. */
  async paged(queue, pages, first, context, steps) {
    const size = pageSize(queue);
    const allPages = [...pages];
    const tokens: number[] = [];
    let token = first;
    for (let position = context; position < context + steps; position++) {
      const pageIndex = Math.floor(position / size);
      if (pageIndex === allPages.length) allPages.push(...allocatePages(queue, 1));
      const result = await step(queue, {
        tokens: [token],
        positions: [position],
        inPages: Uint32Array.from(allPages.slice(0, Math.ceil(position / size))),
        outPages: Uint32Array.from(allPages.slice(pageIndex, pageIndex + 1)),
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: GREEDY },
      }).read();
      token = unwrap(result).tokens[0] ?? 0;
      tokens.push(token);
    }
    return tokens;
  },

  async 'run-ahead'(queue, pages, first, context, steps) {
    const ahead = new Run(queue, {
      token: first,
      position: context,
      pages,
      maxTokens: steps,
      sampler: GREEDY,
      stopTokens: [],
    });
    return await tokensOf(ahead);
  },

  async penalties(queue, pages, first, context, steps) {
    const request = { token: first, position: context, pages, maxTokens: steps, sampler: GREEDY, stopTokens: [] };
    const changes = { frequency: 0.5, presence: 0.2, biasTokens: [], biasValues: [], chosen: [] };
    return await tokensOf(startRun(queue, request, changes));
  },
};

async function tokensOf(run: Run): Promise<number[]> {
  const tokens: number[] = [];
  for (;;) {
    const chunk = unwrap(await run.next().read());
    tokens.push(...chunk.tokens);
    if (chunk.finished) return tokens;
  }
}
