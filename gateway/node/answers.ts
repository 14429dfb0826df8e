import { InputChecker } from '#scheduler/functions/input-check.ts';
import type { Questions } from '#scheduler/invocations/questions.ts';
import type { Invocation } from '#scheduler/invocations/types.ts';
import type { PersonAnswer } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** Takes persons' answers to the questions of invocations. */
export class Answers {
  readonly #questions: Questions;
  readonly #checker = new InputChecker();

  constructor(questions: Questions) {
    this.#questions = questions;
  }

  /** Checks an answer by its question's schema and stores it. Throws `not-waiting`, `invalid-input`, and what `Questions.answer` throws. */
  async give(record: Invocation, { text, value, question }: PersonAnswer): Promise<void> {
    const { id, question: openQuestion, seq } = record;
    if (openQuestion === null || (question !== undefined && question !== seq)) throw notWaiting(id, question);
    const schemaSource = { name: id, version: `${id}/${seq}`, manifest: { input: openQuestion.schema } };
    const fault = this.#checker.check(schemaSource, value, `The answer to ${id}`);
    if (fault !== null) {
      const { message, field, cause } = fault;
      const hint = `Send an answer that the question's schema accepts. \`pie answer ${id}\` and \`GET /v1/invocations/${id}\` show it.`;
      throw new GatewayError('invalid-input', message, { field, hint, cause });
    }
    // The number matters: the invocation may ask another question, with another schema, in between.
    if ((await this.#questions.answer(id, text, seq)) !== 'ok') throw notWaiting(id, question);
  }
}

function notWaiting(id: string, question: number | undefined): GatewayError {
  const which = question === undefined ? 'an answer' : `an answer to question ${question}`;
  return new GatewayError('not-waiting', `The invocation ${id} does not wait for ${which}.`);
}
