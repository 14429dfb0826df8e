import { InputChecker } from '#scheduler/functions/input-check.ts';
import type { Questions } from '#scheduler/invocations/questions.ts';
import type { Invocation } from '#scheduler/invocations/types.ts';
import type { PersonAnswer } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';

/** Checks and stores persons' answers to the questions of invocations. */
export class Answers {
  readonly #questions: Questions;
  readonly #checker = new InputChecker();

  constructor(questions: Questions) {
    this.#questions = questions;
  }

  /** Checks an answer against its question's schema and stores it. Throws `not-waiting`, `invalid-input`, and the errors of `Questions.answer`. */
  async give(record: Invocation, { text, value, question }: PersonAnswer): Promise<void> {
    // The question is the last event of a waiting invocation, so the question's number is that event's `seq`.
    const { id, question: openQuestion, seq: openNumber } = record;
    if (openQuestion === null || (question !== undefined && question !== openNumber)) throw notWaiting(id, question);
    // The checker keeps compiled schemas by `version`, so `version` must name this question.
    const schemaSource = { name: id, version: `${id}/${openNumber}`, manifest: { input: openQuestion.schema } };
    const fault = this.#checker.check(schemaSource, value, `The answer to ${id}`);
    if (fault !== null) {
      const { message, field, cause } = fault;
      const hint = `Send an answer that the question's schema accepts. \`pie answer ${id}\` and \`GET /v1/invocations/${id}\` show it.`;
      throw new GatewayError('invalid-input', message, { field, hint, cause });
    }
    // Pass the number of the question: meanwhile the invocation may have asked another question, with another schema.
    if ((await this.#questions.answer(id, text, openNumber)) !== 'ok') throw notWaiting(id, question);
  }
}

function notWaiting(id: string, question: number | undefined): GatewayError {
  const awaited = question === undefined ? 'an answer' : `an answer to question ${question}`;
  return new GatewayError('not-waiting', `The invocation ${id} does not wait for ${awaited}.`);
}
