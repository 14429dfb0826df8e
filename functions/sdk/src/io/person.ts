import { toJson } from '../json.ts';
import { attempt, person as host } from '../raw.ts';

/** A question to a person. */
export interface PersonQuestion {
  /** Text for the person; 1 to 4,096 characters. */
  readonly text: string;
  /** JSON Schema of the answer; any text by default. */
  readonly schema?: object;
  /** Time for which the invocation waits for an answer: 1 second to 30 days; a day by default. */
  readonly timeoutMs?: number;
  /** A JSON value that the handler gets back when it runs again, of at most 262,144 characters; null by default. */
  readonly state?: unknown;
}

/** The output of a handler that has asked a person. The platform drops this output. */
export interface Waiting {
  readonly waiting: true;
}

/** The handler gets this when it runs again after a question: the state that came with the question, and the answer. */
export interface Resumption<State = unknown, Answer = unknown> {
  readonly state: State;
  /** `expired`: the time has passed without an answer. The value of an answer fits the question's schema. */
  readonly answer: { readonly status: 'answered'; readonly value: Answer } | { readonly status: 'expired' };
}

const DAY_MS = 86_400_000;

/**
 * Asks a person. The handler must return the result of this call: this run of the handler (an attempt) then ends, and
 * the invocation waits without an instance or memory, even across restarts of the platform. After the answer, or after
 * `timeoutMs`, the handler runs again from the beginning with the same input, and {@link resumed} has the state and the
 * answer. Throws `invalid-argument` for a question past its bounds and for a second question in the same attempt, and
 * `unsupported` in a child, which is an invocation that another inferlet launched.
 *
 * @example
 * export const run = defineInferlet(async ({ topic }: { topic: string }) => {
 *   const asked = resumed<{ draft: string }, boolean>();
 *   if (asked === null) {
 *     const draft = await write(topic);
 *     return askPerson({ text: `Publish?\n\n${draft}`, schema: { type: 'boolean' }, state: { draft } });
 *   }
 *   return { draft: asked.state.draft, published: asked.answer.status === 'answered' && asked.answer.value };
 * });
 */
export function askPerson({
  text,
  schema = { type: 'string' },
  timeoutMs = DAY_MS,
  state = null,
}: PersonQuestion): Waiting {
  // The contract has a u32. The platform refuses a time past its bounds.
  const timeoutSeconds = Math.min(2 ** 32 - 1, Math.max(0, Math.ceil(timeoutMs / 1000)));
  attempt(() => host.ask({ text, schema: toJson(schema), timeoutSeconds, state: toJson(state) }));
  return { waiting: true };
}

/** The state and the answer of the last question to a person; null in an invocation that has not asked one. */
export function resumed<State = unknown, Answer = unknown>(): Resumption<State, Answer> | null {
  const resumption = host.resumed();
  if (resumption === null || resumption === undefined) return null;
  const { answer } = resumption;
  return {
    state: JSON.parse(resumption.state),
    answer: answer.tag === 'answered' ? { status: 'answered', value: JSON.parse(answer.val) } : { status: 'expired' },
  };
}
