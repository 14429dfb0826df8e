import { defineInferlet } from '@pie/inferlet';
import { choice, gen, program, type State, type Variable } from '@pie/inferlet/workflow';

/** The input that the schema in pie.json accepts, with its defaults filled in. */
interface Input {
  readonly question: string;
  readonly branches: number;
  readonly maxTokens: number;
  readonly model?: string;
}

/** A solution of the search, and the score that the model gives it: values that exist once the program runs. */
interface Solution {
  readonly solution: Variable;
  readonly score: Variable;
}

const DEFAULTS = { branches: 2, maxTokens: 24 };
const SCORES = [' 1', ' 2', ' 3', ' 4', ' 5'];

/** Proposes plans for a question, carries each out in several ways, scores the solutions, and answers from the best one. */
export const app = program(
  'tree-search',
  (session, { branches, maxTokens, model }: Input) => {
    const root = session.state({ model }).add`Question: ${session.argument('question')}\n`;
    /** Appends a label and a line that the model writes. Returns the line. */
    const write = (state: State, label: string): Variable => {
      const line = gen({ maxTokens, stop: '\n' });
      state.add`${label}${line}\n`;
      return line;
    };
    const numbers = Array.from({ length: branches }, (_, i) => i + 1);
    const planTexts: Variable[] = [];
    const solutions = numbers.flatMap((planNumber) => {
      const planned = root.fork();
      planTexts.push(write(planned, `Plan ${planNumber}:`));
      return numbers.map((solutionNumber): Solution => {
        const solved = planned.fork();
        const solution = write(solved, `Solution ${solutionNumber}:`);
        const score = choice(SCORES);
        solved.add`Score of the solution, from 1 to 5:${score}`;
        return { solution, score };
      });
    });
    const solutionsAndScores = solutions.flatMap(({ solution, score }) => [solution, score]);
    const best = session.call('best', solutionsAndScores, 'text', bestOf);
    root.add`The best solution:${best}\n`;
    const answer = write(root, 'Answer:');
    return { answer, best, plans: planTexts, solutions: solutions.map(({ solution }) => solution) };
  },
  // The build of the component traces the program into a graph for these inputs and any question. Invocations with these inputs use that graph.
  { plans: [DEFAULTS] },
);

/** The first of the solutions with the highest score. `texts` holds each solution, followed by its score. */
function bestOf(texts: readonly string[]): string {
  let [best, highest] = ['', 0];
  for (let i = 0; i < texts.length; i += 2) {
    const score = Number(texts[i + 1]);
    if (score > highest) [best, highest] = [texts[i] ?? '', score];
  }
  return best;
}

/** With `interpret`, runs one operation after another instead of as a graph. The test compares the two. */
export const run = defineInferlet(
  ({ interpret = false, ...input }: Partial<Input> & { readonly interpret?: boolean }) =>
    app.run({ ...DEFAULTS, question: '', ...input }, { interpret }),
);
