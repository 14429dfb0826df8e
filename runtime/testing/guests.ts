/**
 * A guest that generates token by token, and sends each token before it requests the next. Its event log therefore has as many messages as the
 * tokens that it was charged for. Input: `{tokens, pauseMs?}`.
 */
export const COUNTING = `
  import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
  import { step } from 'pie:inferlet/fused@0.1.0';
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { models, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { flush, send } from 'pie:inferlet/session@0.1.0';

  const GREEDY = { tag: 'sample', val: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 } };

  export async function run(input) {
    const { tokens, pauseMs = 0 } = JSON.parse(input);
    const queue = new Queue(models()[0].name);
    const pages = allocatePages(queue, Math.ceil((8 + tokens) / 16));
    let next = [1, 5, 9, 44, 3, 17, 60, 2];
    let position = 0;
    for (let i = 0; i < tokens; i++) {
      const positions = next.map((_, at) => position + at);
      const output = { tokens: next, positions, inPages: pages, outPages: pages, mask: undefined, rows: 1, output: GREEDY };
      const made = await step(queue, output).read();
      if (made.tag === 'err') throw new Error(made.val.tag + ': ' + made.val.val);
      send({ tag: 'text', val: String(made.val.tokens[0]) });
      if (pauseMs > 0) {
        await flush().read();
        await sleep(pauseMs).read();
      }
      position += next.length;
      next = [made.val.tokens[0]];
    }
    return JSON.stringify(tokens);
  }
`;

/**
 * Fills the pages that it allocates, because empty pages cost nothing to give up. Sends `holding`, and then acts as `do` of its input
 * `{pages, do, more?}` says: `spin` computes forever; `sleep` sleeps, reports the outcome and sleeps on; `end` returns
 * after a message; any other value allocates `more` pages after a message.
 */
export const HOLDING = `
  import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
  import { step } from 'pie:inferlet/fused@0.1.0';
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { models, sleep } from 'pie:inferlet/runtime@0.1.0';
  import { receive, send } from 'pie:inferlet/session@0.1.0';

  const say = (text) => send({ tag: 'text', val: text });

  export async function run(input) {
    const { pages, do: next, more } = JSON.parse(input);
    const queue = new Queue(models()[0].name);
    const outPages = allocatePages(queue, pages);
    const positions = Array.from({ length: pages * 16 }, (_, i) => i);
    const tokens = positions.map((i) => 3 + ((i * 7 + pages * 13) % 90));
    const request = { tokens, positions, inPages: [], outPages, mask: undefined, rows: 0, output: { tag: 'none' } };
    const held = await step(queue, request).read();
    if (held.tag === 'err') throw new Error(held.val.val);
    say('holding');
    if (next === 'spin') for (;;);
    if (next === 'sleep') {
      const outcome = await sleep(100_000).read();
      say(outcome.val.tag);
      for (;;) await sleep(1).read();
    }
    await receive().read();
    if (next === 'end') return '"ended"';
    allocatePages(queue, more);
    const outcome = await queue.synchronize().read();
    return JSON.stringify(outcome.tag);
  }
`;

/**
 * Fills its pages, sends `full`, and then repeats a step of one token over them until it gets a message. Returns the time that it has left.
 * With `child`, a child of the function `stepping` does this work, and the inferlet passes the message on. With `busy`, the inferlet waits for a
 * message before it begins, and then has twelve calls of 21 tokens under way at any time.
 * Input: `{pages, child?, busy?}`.
 */
export const STEPPING = `
  import { allocatePages } from 'pie:inferlet/allocate@0.1.0';
  import { Child } from 'pie:inferlet/children@0.1.0';
  import { step } from 'pie:inferlet/fused@0.1.0';
  import { Queue } from 'pie:inferlet/queue@0.1.0';
  import { models, timeLeft } from 'pie:inferlet/runtime@0.1.0';
  import { flush, receive, send } from 'pie:inferlet/session@0.1.0';

  const say = async (text) => {
    send({ tag: 'text', val: text });
    await flush().read();
  };

  export async function run(input) {
    const { pages, child, busy } = JSON.parse(input);
    if (child) return lead(pages);
    if (busy) {
      await say('ready');
      await receive().read();
    }
    const queue = new Queue(models()[0].name);
    const held = allocatePages(queue, pages);
    const last = pages * 16 - 1;
    const go = async (from, to, outPages) => {
      const positions = Array.from({ length: to - from }, (_, i) => from + i);
      const tokens = positions.map((i) => 3 + ((i * 7 + pages * 13) % 90));
      const request = { tokens, positions, inPages: held, outPages, mask: undefined, rows: 0, output: { tag: 'none' } };
      const made = await step(queue, request).read();
      if (made.tag === 'err') throw new Error(made.val.val);
    };
    await go(0, last, held);
    await say('full');
    let told = false;
    receive().read().then(() => (told = true));
    const again = async () => {
      while (!told) await go(busy ? last - 20 : last, last + 1, []);
    };
    await Promise.all(Array.from({ length: busy ? 12 : 1 }, again));
    return JSON.stringify(Number(timeLeft()));
  }

  async function lead(pages) {
    const stepper = new Child('stepping', JSON.stringify({ pages }));
    await stepper.receive().read();
    await say('full');
    await receive().read();
    await stepper.send({ tag: 'text', val: 'end' }).read();
    const ending = await stepper.wait().read();
    return JSON.stringify({ left: Number(timeLeft()), child: ending.val });
  }
`;

/** Issues calls that embed 256 texts each, all at once, and returns the number of the texts' tokens. Input: `{calls}`. */
export const EMBEDDING = `
  import { embed } from 'pie:inferlet/embedding@0.1.0';

  const TEXTS = new Array(256).fill('the king of france '.repeat(12));

  export async function run(input) {
    const { calls } = JSON.parse(input);
    let tokens = 0;
    for (const call of Array.from({ length: calls }, () => embed('', TEXTS))) {
      const outcome = await call.read();
      if (outcome.tag === 'err') throw new Error(outcome.val.tag + ': ' + outcome.val.val);
      tokens += outcome.val.tokens;
    }
    return JSON.stringify(tokens);
  }
`;
