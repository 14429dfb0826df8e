import { defineInferlet } from '@pie/inferlet';
import { gen, program } from '@pie/inferlet/workflow';

/** The input that the schema in pie.json accepts, with its defaults. */
interface Input {
  readonly questions: readonly string[];
  readonly maxTokens: number;
  readonly model?: string;
}

const DEFAULTS = { maxTokens: 24 };
/**
 * The build of the component makes plans (optimised graphs of the program) for conversations of 1 to this many turns
 * with the default settings. A plan depends on the number of questions, and not on their texts. For a longer
 * conversation, or with other settings, the invocation makes the graph itself.
 */
const PLANNED_TURNS = 4;

/** A conversation of several turns; each answer depends on all earlier questions and answers. */
export const app = program(
  'multi-turn',
  (session, { maxTokens, model }: Input) => {
    const conversation = session.state({ model });
    const answers = session.list('questions').map((question) => {
      const answer = gen({ maxTokens, stop: '\n' });
      conversation.add`Question: ${question}\nAnswer:${answer}\n`;
      return answer;
    });
    return { answers };
  },
  {
    plans: Array.from({ length: PLANNED_TURNS }, (_, i) => ({ ...DEFAULTS, questions: Array<string>(i + 1).fill('') })),
  },
);

/** With `interpret`, the program runs one operation after another, without a graph. A benchmark compares both ways. */
export const run = defineInferlet(
  ({ interpret = false, ...input }: Partial<Input> & { readonly interpret?: boolean }) =>
    app.run({ ...DEFAULTS, questions: [], ...input }, { interpret }),
);
