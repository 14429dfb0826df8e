import { defineInferlet } from '@pie/inferlet';
import { choice, gen, program } from '@pie/inferlet/workflow';

/** The input that the schema in pie.json accepts, with its defaults. */
interface Input {
  readonly essay: string;
  readonly dimensions: readonly string[];
  readonly maxTokens: number;
  readonly model?: string;
}

/** The build of the component makes a plan (an optimised graph) for these settings. */
const DEFAULTS = { dimensions: ['clear', 'interesting', 'kind'], maxTokens: 24 };
const GRADES = [' A', ' B', ' C', ' D'];

/** Judges an essay in several dimensions at once, sums the judgments up and gives a grade. */
export const app = program(
  'judge',
  (session, { maxTokens, model }: Input) => {
    const text = session.state({ model }).add`Essay: ${session.argument('essay')}\n`;
    const judged = session.list('dimensions').map((dimension) => {
      const judgment = gen({ maxTokens, stop: '\n' });
      text.fork().add`Is the essay ${dimension}? The judgment:${judgment}`;
      return { dimension, judgment };
    });
    for (const { dimension, judgment } of judged) text.add`Is it ${dimension}?${judgment}\n`;
    const [summary, grade] = [gen({ maxTokens, stop: '\n' }), choice(GRADES)];
    text.add`In summary,${summary}\nGrade:${grade}`;
    return { judgments: judged.map(({ judgment }) => judgment), summary, grade };
  },
  { plans: [DEFAULTS] },
);

/** With `interpret`, the program runs one operation after another, without a graph. */
export const run = defineInferlet(
  ({ interpret = false, ...input }: Partial<Input> & { readonly interpret?: boolean }) =>
    app.run({ ...DEFAULTS, essay: '', ...input }, { interpret }),
);
