/** One action on saved contexts, for the end-to-end tests of export and import, of persistent exports, and of the tenant's names. */
import { Context, defineInferlet, model } from '@pie/inferlet';
import { allocate, Queue, settle } from '@pie/inferlet/raw';

type Input =
  /** Saves `prompt` under a name and generates from it. */
  | { action: 'save'; name: string; prompt: string; persistent?: boolean; durable?: boolean; maxTokens?: number }
  /** Opens the context saved under `name`, with `tokens` if they are set. Then fills in `more`, and generates. */
  | { action: 'open'; name: string; tokens?: number[]; more?: string; maxTokens?: number }
  | { action: 'list' }
  | { action: 'remove'; name: string };

export const run = defineInferlet(async (input: Input) => {
  switch (input.action) {
    case 'save': {
      using context = new Context();
      context.fill(input.prompt);
      const saved = [...context.tokens];
      const { persistent = false, durable = false } = input;
      await context.save(input.name, durable ? { durable } : { persistent });
      const { tokens } = await context.generate({ maxTokens: input.maxTokens ?? 8 }).collect();
      return { saved, tokens };
    }
    case 'open': {
      using context = await Context.open(input.name, input.tokens ? { tokens: input.tokens } : {});
      const opened = context.length;
      if (input.more !== undefined) context.fill(input.more);
      const { tokens } = await context.generate({ maxTokens: input.maxTokens ?? 8 }).collect();
      return { opened, tokens };
    }
    case 'list': {
      using queue = new Queue(model().name);
      return { exports: await settle(allocate.listExports(queue)) };
    }
    case 'remove': {
      using queue = new Queue(model().name);
      await settle(allocate.unexport(queue, input.name));
      return { removed: input.name };
    }
  }
});
