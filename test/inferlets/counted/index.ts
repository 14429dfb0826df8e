/**
 * Counts its run in the store, then generates token by token. It sends each token before it requests the next, so the messages in its event log
 * match the charged tokens.
 */
import { defineInferlet, launch, model, receive, send, sleep, store } from '@pie/inferlet';
import { allocate, fused, Queue, settle } from '@pie/inferlet/raw';

interface Input {
  /** Names this invocation in the store. */
  readonly mark?: string;
  /** Only returns how often the invocation with that mark ran. */
  readonly read?: string;
  /** Tokens of the prompt. */
  readonly context?: number;
  readonly tokens?: number;
  /** Pause after each token. */
  readonly pauseMs?: number;
  /** Token before which the inferlet waits for a message of its client. At 0 it waits before it launches the child, too. */
  readonly listenAt?: number;
  /** Launches a child that runs the same function, and waits for it. */
  readonly child?: boolean;
}

const GREEDY = { tag: 'sample', val: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 } } as const;

export const run = defineInferlet(async (input: Input) => {
  const { mark = '', read, context = 8, tokens = 16, pauseMs = 0, listenAt, child = false } = input;
  if (read !== undefined) return { ran: (await store.getJson<number>(read)) ?? 0 };
  await store.update<number>(mark, (times = 0) => times + 1);
  if (listenAt === 0) await receive();
  if (child) await (await launch('counted', { mark: `${mark}-child`, tokens })).result();
  const { name, pageSize } = model();
  using queue = new Queue(name);
  const pages = allocate.allocatePages(queue, Math.ceil((context + tokens) / pageSize));
  const prompt = Array.from({ length: context }, (_, i) => (i === 0 ? 1 : 300 + ((i * 37) % 20_000)));
  let next = prompt;
  let position = 0;
  for (let i = 0; i < tokens; i++) {
    if (i > 0 && i === listenAt) await receive();
    const positions = next.map((_, at) => position + at);
    const step = { tokens: next, positions, inPages: pages, outPages: pages, rows: 1, output: GREEDY } as const;
    const token = (await settle(fused.step(queue, step))).tokens[0] ?? 0;
    await send(String(token));
    position += next.length;
    next = [token];
    if (pauseMs > 0) await sleep(pauseMs);
  }
  return { tokens };
});
