/** Cases of `queue`, `forward`, `input-text`, `output-text`, `fused`, `penalties` and `introspect`. */

import type { LogitChanges } from 'pie:inferlet/penalties@0.1.0';
import { model } from '@pie/inferlet';
import {
  forward,
  fused,
  inputText,
  introspect,
  outputText,
  penalties,
  type Queue,
  Run,
  settle,
} from '@pie/inferlet/raw';
import { type Cases, embedsOf, issued, NO_ADDRESS, NO_MODEL, near, newQueue, pagesOf, upTo } from './case.ts';

/** Ids of "Once upon a time", after the token that begins a text. */
export const PROMPT = [1, 9038, 2501, 263, 931];
const GREEDY = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
/** Ids of ", there was", the greedy continuation of the prompt. */
export const NEXT = [29892, 727, 471];
/** The first token of the continuation. */
export const COMMA = 29892;
/** Size of the model's states. */
const HIDDEN_SIZE = 288;

export interface Computed {
  readonly pages: readonly number[];
  /** Embed with the state after the last token. */
  readonly state: number;
}

/** Embeds `tokens` and forwards them into a new page. */
export function compute(queue: Queue, tokens: readonly number[] = PROMPT): Computed {
  const pages = pagesOf(queue, 1);
  const inputs = embedsOf(queue, tokens.length);
  const [state = 0] = embedsOf(queue, 1);
  inputText.embedText(queue, tokens, upTo(tokens.length), inputs);
  forward.forward(queue, [], inputs, pages, [state], undefined);
  return { pages, state };
}

const step = (queue: Queue, changes: Partial<Parameters<typeof fused.step>[1]> = {}) =>
  fused.step(queue, {
    tokens: PROMPT,
    positions: upTo(PROMPT.length),
    inPages: [],
    outPages: [],
    rows: 1,
    output: { tag: 'sample', val: GREEDY },
    ...changes,
  });

export const queueCases: Cases = {
  'queue.[constructor]queue': {
    ok: () => newQueue().drop(),
    fails: { 'not-found': () => issued(() => undefined, NO_MODEL) },
  },
  'queue.[method]queue.set-priority': {
    ok: () =>
      issued((queue) => {
        queue.setPriority(2_000_000_000);
        queue.setPriority(-3);
      }),
  },
  'queue.[method]queue.set-depth': {
    ok: () =>
      issued((queue) => {
        queue.setDepth(4_294_967_295);
        queue.setDepth(0);
      }),
  },
  'queue.[method]queue.stop': {
    ok: () => issued((queue) => queue.stop()),
    fails: {
      cancelled: () =>
        issued((queue) => {
          queue.stop();
          void compute(queue);
        }),
    },
  },
  'queue.[method]queue.synchronize': {
    ok: () => issued((queue) => void compute(queue)),
    fails: { 'not-owned': () => issued((queue) => forward.forward(queue, [], [NO_ADDRESS], [], [], undefined)) },
  },
};

export const forwardCases: Cases = {
  'forward.forward': {
    ok: async () => {
      using queue = newQueue();
      const whole = compute(queue);
      const { tokens } = await settle(outputText.nextDistribution(queue, whole.state, 1));
      // The prompt again, in two pieces over one page. A row's runs alternate between hidden and visible keys: token 4 sees 4 keys, token 5 all 5.
      const pages = pagesOf(queue, 1);
      const inputs = embedsOf(queue, PROMPT.length);
      const [state = 0] = embedsOf(queue, 1);
      inputText.embedText(queue, PROMPT, upTo(PROMPT.length), inputs);
      forward.forward(queue, [], inputs.slice(0, 3), pages, [], undefined);
      const mask = { runs: [0, 4, 1, 0, 5], rowLengths: [3, 2] };
      forward.forward(queue, pages, inputs.slice(3), pages, [state], mask);
      const pieces = await settle(outputText.nextDistribution(queue, state, 1));
      return pieces.tokens.join() === tokens.join();
    },
    fails: {
      'not-owned': () =>
        issued((queue) => {
          const inputs = embedsOf(queue, 1);
          inputText.embedText(queue, [1], [0], inputs);
          forward.forward(queue, [NO_ADDRESS], inputs, [], [], undefined);
        }),
      'invalid-argument': () =>
        issued((queue) => {
          const inputs = embedsOf(queue, 1);
          inputText.embedText(queue, [1], [0], inputs);
          forward.forward(queue, [], inputs, [], [], { runs: [0, 3], rowLengths: [2] });
        }),
      'context-overflow': () =>
        issued((queue) => {
          const [page = 0] = pagesOf(queue, 1);
          const inputs = embedsOf(queue, 17);
          inputText.embedText(queue, upTo(17, 100), upTo(17), inputs);
          forward.forward(queue, [], inputs, [page], [], undefined);
        }),
    },
  },
  'forward.mask-page': {
    ok: async () => {
      using queue = newQueue();
      const { pages } = compute(queue);
      const next = () =>
        settle(
          step(queue, {
            tokens: [COMMA],
            positions: [PROMPT.length],
            inPages: pages,
            output: { tag: 'distributions', val: 4 },
          }),
        ).then(({ distributions }) => distributions[0]?.logProbabilities ?? []);
      const before = await next();
      forward.maskPage(queue, pages[0] ?? 0, 0b110);
      const hidden = await next();
      forward.maskPage(queue, pages[0] ?? 0, 0);
      return near(before, await next(), 1e-5) && !near(before, hidden, 1e-3);
    },
    fails: { 'not-owned': () => issued((queue) => forward.maskPage(queue, NO_ADDRESS, 1)) },
  },
  'input-text.embed-text': {
    ok: () => issued((queue) => inputText.embedText(queue, [1, 2], [0, 1], embedsOf(queue, 2))),
    fails: {
      'invalid-argument': () => issued((queue) => inputText.embedText(queue, [1_000_000], [0], embedsOf(queue, 1))),
      'not-owned': () => issued((queue) => inputText.embedText(queue, [1], [0], [NO_ADDRESS])),
      'not-found': () => issued((queue) => inputText.embedText(queue, [1], [0], [1]), NO_MODEL),
    },
  },
};

export const outputCases: Cases = {
  'output-text.next-distribution': {
    ok: async () => {
      using queue = newQueue();
      const { tokens, logProbabilities } = await settle(outputText.nextDistribution(queue, compute(queue).state, 5));
      return (
        tokens[0] === COMMA && logProbabilities.every((value, i) => i === 0 || value <= (logProbabilities[i - 1] ?? 0))
      );
    },
    fails: {
      'not-owned': () => asked((queue) => outputText.nextDistribution(queue, NO_ADDRESS, 5)),
      'invalid-argument': () => asked((queue) => outputText.nextDistribution(queue, compute(queue).state, 0)),
    },
  },
  'output-text.log-probabilities': {
    ok: async () => {
      using queue = newQueue();
      const { state } = compute(queue);
      const best = await settle(outputText.nextDistribution(queue, state, 3));
      return near(await settle(outputText.logProbabilities(queue, state, best.tokens)), best.logProbabilities);
    },
    fails: {
      'invalid-argument': () => asked((queue) => outputText.logProbabilities(queue, compute(queue).state, [1_000_000])),
    },
  },
  'output-text.entropy': {
    ok: async () => {
      using queue = newQueue();
      const entropy = await settle(outputText.entropy(queue, compute(queue).state));
      return entropy > 0 && entropy < Math.log(model().vocabularySize);
    },
    fails: { 'not-owned': () => asked((queue) => outputText.entropy(queue, NO_ADDRESS)) },
  },
  'output-text.read-embed': {
    ok: async () => {
      using queue = newQueue();
      return (await settle(outputText.readEmbed(queue, compute(queue).state))).length === HIDDEN_SIZE;
    },
    fails: { 'not-owned': () => asked((queue) => outputText.readEmbed(queue, NO_ADDRESS)) },
  },
};

export const fusedCases: Cases = {
  'fused.step': {
    ok: async () => {
      using queue = newQueue();
      const [sampled, ranked] = await Promise.all([
        settle(step(queue)),
        settle(step(queue, { rows: 2, output: { tag: 'distributions', val: 1 } })),
      ]);
      return (
        sampled.tokens.join() === String(COMMA) &&
        ranked.distributions.map(({ tokens }) => tokens[0]).join() === [PROMPT.at(-1), COMMA].join()
      );
    },
    fails: {
      'invalid-argument': () => asked((queue) => step(queue, { positions: [0] })),
      'not-owned': () => asked((queue) => step(queue, { inPages: [NO_ADDRESS] })),
      'context-overflow': () => asked((queue) => step(queue, { positions: upTo(PROMPT.length, 255) })),
      'not-found': () => asked((queue) => step(queue), NO_MODEL),
    },
  },
  'fused.[constructor]run': {
    ok: async () => {
      using queue = newQueue();
      return (await decoded(queue, 6)).length === 6;
    },
    fails: { 'not-owned': () => runToEnd({ pages: () => [NO_ADDRESS] }) },
  },
  'fused.[method]run.next': {
    ok: async () => {
      using queue = newQueue();
      return (await decoded(queue, 3)).join() === NEXT.join();
    },
    fails: {
      'context-overflow': () => runToEnd({ maxTokens: 40 }),
    },
  },
  'fused.[method]run.pipe': {
    ok: async () => {
      using queue = newQueue();
      using run = new Run(queue, { ...RUN, pages: await prompted(queue), maxTokens: 3 });
      const { tokens, text, held, stop, finished } = await settle(run.pipe(PIPE));
      return (
        tokens.join() === NEXT.join() &&
        text === ', there was' &&
        `${held}${stop}` === 'null' &&
        finished === 'max-tokens'
      );
    },
    fails: {
      'limit-exceeded': () =>
        asked((queue) =>
          new Run(queue, { ...RUN, pages: pagesOf(queue, 2) }).pipe({ ...PIPE, stops: ['x'.repeat(1025)] }),
        ),
    },
  },
  'fused.[method]run.stop': {
    ok: async () => {
      using queue = newQueue();
      using run = new Run(queue, { ...RUN, pages: pagesOf(queue, 10), maxTokens: 150 });
      await settle(run.next());
      run.stop();
      for (;;) {
        const { finished } = await settle(run.next());
        if (finished !== null) return finished === 'stopped' || finished === 'max-tokens';
      }
    },
  },
};

export const penaltiesCases: Cases = {
  'penalties.start-run': {
    ok: async () => {
      const plain = await penalized({});
      const banned = await penalized({ biasTokens: [COMMA], biasValues: [Number.NEGATIVE_INFINITY] });
      return plain.join() === NEXT.join() && !banned.includes(COMMA);
    },
    fails: {
      'invalid-argument': () => penalized({ frequency: Number.NaN }),
      'limit-exceeded': () => penalized({ biasTokens: Array(1025).fill(1), biasValues: Array(1025).fill(0) }),
    },
  },
};

export const introspectCases: Cases = {
  'introspect.forward-scores': {
    ok: async () => {
      using queue = newQueue();
      const inputs = embedsOf(queue, PROMPT.length);
      inputText.embedText(queue, PROMPT, upTo(PROMPT.length), inputs);
      const scores = await settle(introspect.forwardScores(queue, [], inputs, [], [], undefined));
      return near([scores.reduce((sum, score) => sum + score, 0)], [PROMPT.length], 1e-3);
    },
    fails: {
      'not-owned': () =>
        asked((queue) => {
          const inputs = embedsOf(queue, 1);
          inputText.embedText(queue, [1], [0], inputs);
          return introspect.forwardScores(queue, [NO_ADDRESS], inputs, [], [], undefined);
        }),
    },
  },
};

/** A run that starts with the last token of the prompt; its pages must hold the tokens before ({@link prompted}). */
export const RUN = { token: 931, position: 4, maxTokens: 4, sampler: GREEDY, stopTokens: [] };

async function runToEnd({ pages = (queue: Queue) => pagesOf(queue, 1), maxTokens = 4 }) {
  using queue = newQueue();
  using run = new Run(queue, { ...RUN, pages: pages(queue), maxTokens });
  for (;;) {
    const { finished } = await settle(run.next());
    if (finished !== null) return;
  }
}

const PIPE = { before: PROMPT, held: '', stops: [], frame: null };

/** Pages that hold the prompt without its last token. */
export async function prompted(queue: Queue): Promise<number[]> {
  const pages = pagesOf(queue, 1);
  await settle(
    step(queue, {
      tokens: PROMPT.slice(0, -1),
      positions: upTo(PROMPT.length - 1),
      outPages: pages,
      rows: 0,
      output: { tag: 'none' },
    }),
  );
  return pages;
}

async function decoded(queue: Queue, maxTokens: number): Promise<number[]> {
  return tokensOf(new Run(queue, { ...RUN, pages: await prompted(queue), maxTokens }));
}

async function penalized(changes: Partial<LogitChanges>): Promise<number[]> {
  using queue = newQueue();
  const none = { frequency: 0, presence: 0, biasTokens: [], biasValues: [], chosen: [] };
  const request = { ...RUN, pages: await prompted(queue), maxTokens: 3 };
  return await tokensOf(penalties.startRun(queue, request, { ...none, ...changes }));
}

/** All tokens of a run. */
export async function tokensOf(run: Run): Promise<number[]> {
  using _ = run;
  const tokens: number[] = [];
  for (;;) {
    const chunk = await settle(run.next());
    tokens.push(...chunk.tokens);
    if (chunk.finished !== null) return tokens;
  }
}

/** Makes a call on a new queue and returns its answer. */
export async function asked<T>(call: (queue: Queue) => Parameters<typeof settle<T>>[0], name?: string): Promise<T> {
  using queue = newQueue(name);
  const answer = await settle(call(queue));
  await settle(queue.synchronize());
  return answer;
}
