import { Context, defineInferlet, regex, sampler, scripts, sendJson } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly question: string;
  readonly points?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly script?: readonly string[];
  readonly model?: string;
}

/** One short line, so that the model writes a point's title and not its explanation. */
const TITLE = regex(/ [^\n]{3,40}\n/);

/** Writes the points of an answer one after the other, then expands all of them in parallel. */
export const run = defineInferlet(async (input: Input) => {
  const { question, points = 4, maxTokens = 48, temperature = 0.8, seed, model } = input;
  const pick = scripts(
    input.script?.map((reply) => ` ${reply}\n`),
    () => sampler({ temperature, seed }),
  );
  using skeleton = new Context({ model });
  skeleton.fill(`${question}\n`);
  const titles: string[] = [];
  for (let i = 1; i <= points; i++) {
    const said = await skeleton.fill(`${i}.`).generate({ sampler: pick(), constraint: TITLE }).collect();
    titles.push(said.text.trim());
  }

  async function expand(title: string, index: number): Promise<string> {
    const picks = pick();
    using ctx = await skeleton.fork();
    const generation = ctx.fill(`${index + 1}. ${title}:`).generate({ sampler: picks, maxTokens, stop: '\n' });
    for await (const text of generation) await sendJson({ point: index + 1, text });
    return `${index + 1}. ${title}: ${generation.text.trim()}`;
  }
  const expanded = await Promise.all(titles.map(expand));
  return { skeleton: titles, answer: expanded.join('\n') };
});
