import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { checkInputSchema } from '#scheduler/functions/schema/compiled.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import type { AskedQuestion } from '#scheduler/invocations/questions.ts';
import type { Message, Question, Resumption } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';

/** Implements `wit/session.wit`. */
export const session = {
  send: (inferlet: Inferlet, message: Message) => inferlet.session.send(message),
  flush: (inferlet: Inferlet) => inferlet.session.flush(),
  receive: (inferlet: Inferlet) => inferlet.received.next(),
};

/** Maximum characters of a question's text. */
const MAX_TEXT = 4096;
/** Maximum characters of a question's schema. */
const MAX_SCHEMA = 16_384;
/** Maximum characters of a question's state. */
const MAX_STATE = 262_144;
const MAX_TIMEOUT_SECONDS = 30 * 86_400;
/** Maximum refused questions of an attempt. The check of a schema occupies the runtime's thread. */
const MAX_REFUSED_QUESTIONS = 8;

/** Implements `wit/person.wit`. */
export const person = {
  ask: (inferlet: Inferlet, question: Question): Outcome<undefined> => {
    if (!inferlet.description.mayAsk) return err(handlerError('unsupported', 'only an invocation of a client may ask'));
    if (inferlet.askedQuestion !== null) return refused('the inferlet has asked a question already');
    if (inferlet.refusedQuestionCount >= MAX_REFUSED_QUESTIONS)
      return refused(`${MAX_REFUSED_QUESTIONS} questions of the inferlet were refused already`);
    const startMs = performance.now();
    const asked = checked(question);
    inferlet.hooks.cpu.charge(performance.now() - startMs);
    if (typeof asked === 'string') {
      inferlet.refusedQuestionCount += 1;
      return refused(asked);
    }
    inferlet.askedQuestion = asked;
    return ok(undefined);
  },
  resumed: (inferlet: Inferlet): Resumption | undefined => inferlet.description.resumption,
};

/** The question in the form of the store, or the text of an error. */
function checked({ text, schema, timeoutSeconds, state }: Question): AskedQuestion | string {
  if (text.length === 0 || text.length > MAX_TEXT)
    return `the text has ${text.length} characters, not 1 to ${MAX_TEXT}`;
  if (timeoutSeconds < 1 || timeoutSeconds > MAX_TIMEOUT_SECONDS)
    return `the timeout is ${timeoutSeconds} s, not 1 to ${MAX_TIMEOUT_SECONDS}`;
  if (state.length > MAX_STATE) return `the state has ${state.length} characters; ${MAX_STATE} is the limit`;
  if (schema.length > MAX_SCHEMA) return `the schema has ${schema.length} characters; ${MAX_SCHEMA} is the limit`;
  let parsed: unknown;
  try {
    parsed = jsonValue(schema);
  } catch {
    return 'the schema is not JSON';
  }
  const [fault] = checkInputSchema(parsed);
  if (fault) return `the schema${fault.path.map((part) => `/${part}`).join('')} ${fault.message}`;
  return { text, schema: parsed as AskedQuestion['schema'], timeoutMs: 1000 * timeoutSeconds, state };
}

const refused = (message: string): Outcome<undefined> => err(handlerError('invalid-argument', message));
