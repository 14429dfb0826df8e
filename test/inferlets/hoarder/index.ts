import {
  Context,
  defineInferlet,
  InferletError,
  jsonSchema,
  push,
  send,
  session,
  store,
  tokenize,
  VectorIndex,
} from '@pie/inferlet';

interface Input {
  readonly what: string;
  /** Number of the resource's units to take; the inferlet stops at the first refusal. */
  readonly n: number;
  /** Distinguishes what this invocation takes from what others take. */
  readonly mark: string;
}

const FILLER = 'x'.repeat(2 ** 16);
const DIMENSIONS = 64;

/** Takes the unit number `i` of a resource. */
const takers: Record<string, (i: number, mark: string) => Promise<unknown> | unknown> = {
  values: (i, mark) => store.set(`${mark}-${i}`, FILLER.slice(0, 8192)),
  messages: (i, mark) => push(`${mark}-${i % 100}`, FILLER),
  events: async (i) => {
    await send(FILLER);
    if (i % 2 === 1) await session.flush();
  },
  texts: (i, mark) => tokenize(`${mark} ${i} Once upon a time there was a cat. `.repeat(500)),
  grammars: async (i, mark) => {
    const names = Array.from({ length: 12 }, (_, k) => `${mark}_${i}_${k}`);
    const properties = Object.fromEntries(
      names.map((name) => [name, { enum: Array.from({ length: 50 }, (_, k) => `${name}-${k}`) }]),
    );
    using context = new Context();
    context.fill('A list: ');
    await context.generate({ constraint: jsonSchema({ type: 'object', properties }), maxTokens: 2 }).collect();
  },
  entries: async (i, mark) => {
    const index = await VectorIndex.open(`${mark}-${i % 4}`, { dimensions: DIMENSIONS, metric: 'cosine' });
    const vector = Array.from({ length: DIMENSIONS }, (_, k) => Math.sin(i * DIMENSIONS + k));
    await index.upsert(
      Array.from({ length: 64 }, (_, k) => ({ id: `${i}-${k}`, vector, text: FILLER.slice(0, 4096) })),
    );
    await index.query({ vector, limit: 10 });
  },
};

export const run = defineInferlet(async ({ what, n, mark }: Input) => {
  const take = takers[what];
  if (take === undefined) throw new InferletError('invalid-argument', `nothing is called ${what}`);
  for (let taken = 0; taken < n; taken++) {
    try {
      await take(taken, mark);
    } catch (error) {
      if (!(error instanceof InferletError)) throw error;
      return { taken, refused: error.code };
    }
  }
  return { taken: n };
});
