/** Fails in the way that `what` names, and catches the error if `catches` is true. For the end-to-end tests of typed errors and of chaos. */
import { Context, defineInferlet, fetch, InferletError, send, sleep } from '@pie/inferlet';

interface Input {
  readonly what: 'deadline' | 'pages' | 'host' | 'model';
  /** True to catch the error and return it. */
  readonly catches: boolean;
}

const runInto: Readonly<Record<Input['what'], () => Promise<unknown>>> = {
  deadline: () => sleep(60_000),
  // The manifest grants 4 pages of 16 tokens.
  pages: async () => {
    using ctx = new Context();
    return await ctx.fill('word '.repeat(100)).generate({ maxTokens: 2 }).collect();
  },
  host: () => fetch('http://example.com/'),
  // Decodes until the GPU host dies.
  model: async () => {
    for (;;) {
      using ctx = new Context();
      await ctx.fill('Once').generate({ maxTokens: 20, ignoreEos: true }).collect();
      await send('alive');
    }
  },
};

export const run = defineInferlet(async ({ what, catches }: Input) => {
  try {
    await runInto[what]();
    return { caught: null };
  } catch (error) {
    if (!catches || !(error instanceof InferletError)) throw error;
    return { caught: error.code, message: error.message };
  }
});
