import { Context, defineInferlet, type GenerateOptions, regex, sampler, script } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly rules?: string;
  readonly problem: string;
  readonly depth?: number;
  readonly branches?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  /** Replies that the model must give, by problem: first the parts, if the problem is divided, then the answer. */
  readonly script?: Readonly<Record<string, readonly string[]>>;
  readonly model?: string;
}

/** A problem, its parts, and its answer. */
interface Solved {
  readonly problem: string;
  readonly parts: readonly Solved[];
  readonly answer: string;
}

/** Divides a problem into parts and solves them in parallel. Each part has its own context, forked from the shared rules. */
export const run = defineInferlet(async (input: Input): Promise<Solved> => {
  const { rules = 'Divide a problem into parts, or answer it.', problem, depth = 5, branches = 2, model } = input;
  const { maxTokens = 48, temperature = 0.8, seed } = input;
  const partsList = regex(` [^;\\n]{1,80}(; [^;\\n]{1,80}){${branches - 1}}\\n`);
  using shared = new Context({ model });
  shared.fill(`${rules}\n`);

  async function solve(problem: string, levels: number): Promise<Solved> {
    using ctx = await shared.fork();
    const replies = [...(input.script?.[problem] ?? [])];
    // Lets the model write after `label`. The library's `script` forces a reply of the input's script.
    const say = async (label: string, options: GenerateOptions): Promise<string> => {
      const reply = replies.shift();
      const picks = reply === undefined ? sampler({ temperature, seed }) : script(` ${reply}\n`);
      const generation = ctx.fill(label).generate({ sampler: picks, maxTokens, ...options });
      return (await generation.collect()).text.trim();
    };
    ctx.fill(`Problem: ${problem}\n`);
    const parts: Solved[] = [];
    if (levels > 0) {
      const divided = await say('Parts:', { constraint: partsList });
      const solved = divided.split(';').map((part) => solve(part.trim(), levels - 1));
      parts.push(...(await Promise.all(solved)));
      ctx.fill(`Answers: ${parts.map(({ answer }) => answer).join('; ')}\n`);
    }
    return { problem, parts, answer: await say('Answer:', { stop: '\n' }) };
  }
  return await solve(problem, depth);
});
