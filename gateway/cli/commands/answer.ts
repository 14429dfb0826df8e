import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { readInput } from './input.ts';

export const answer = defineCommand({
  name: 'answer',
  summary: 'Answer the question of a waiting invocation',
  description:
    'Answers the question that an invocation asks a person; the invocation then continues. Without an answer, the command prints the question and the schema that the answer must match. The first answer wins.',
  arguments: [
    { name: 'invocation', help: 'id of the invocation; `pie ps --status waiting` lists them', required: true },
    { name: 'answer', help: 'the answer: JSON, @file, or - for standard input', required: false },
  ],
  options: [{ flags: '--question <number>', help: 'answer only the question with this number', parse: numberOf }],
  examples: [
    { line: 'pie answer inv_4f1c', does: 'prints the question' },
    { line: `pie answer inv_4f1c '{"approve":true}'`, does: 'answers, and the invocation goes on' },
  ],
  async run({ args: [id, answerText], options, terminal, signal, connect }) {
    const inputHint = { what: 'answer', before: `pie answer ${id}`, example: '{"approve":true}' };
    const value = answerText === undefined ? undefined : readInput(answerText, inputHint);
    const { client } = await connect();
    if (answerText === undefined) {
      const { question } = await client.invocation(id, { signal });
      if (question === undefined)
        throw new Failure(`The invocation ${id} has no open question.`, {
          code: 'not-waiting',
          advice: `\`pie status ${id}\` shows its state.`,
        });
      terminal.value(question);
      terminal.print(question.text);
      terminal.print(JSON.stringify(question.schema));
      terminal.note(`The invocation waits until ${question.until}. Next: pie answer ${id} JSON`);
      return EXIT.ok;
    }
    const state = await client.answer(id, value, { signal, question: options.question });
    terminal.value(state);
    terminal.print(`${state.id}  ${state.status}`);
    terminal.note(`Next: pie attach ${state.id}`);
    return EXIT.ok;
  },
});

function numberOf(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new Failure('It must be the number of a question, as `pie status` shows it.');
}
