import { randomUUID } from 'node:crypto';
import type { Resumption } from '../admission/job.ts';
import { throwBytesQuota } from '../quotas/exceeded.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { meteredText } from '../usage/metered.ts';
import { MAX_INBOX_MESSAGES } from './inbox.ts';
import { DEFAULT_RETENTION, endingArguments, gap, type Retention, unexpected } from './replies.ts';
import type { Question, Usage } from './types.ts';

const ASK = loadScript(new URL('./questions.lua', import.meta.url), 'ask');
const ANSWER = loadScript(new URL('./questions.lua', import.meta.url), 'answer');

/** A question that ends an attempt. */
export interface AskedQuestion extends Pick<Question, 'text' | 'schema'> {
  /** Time for which the invocation waits for an answer. */
  readonly timeoutMs: number;
  /** Text for the next attempt. */
  readonly state: string;
  /** Token of the last message of the client that the attempt has handled (`InboxHandler.handled`). */
  readonly handled?: Buffer | undefined;
}

const ASK_OUTCOMES = ['waiting', 'cancelled', 'stale', 'ended', 'full'] as const;
/**
 * `waiting`: the attempt has ended, and the invocation waits. `cancelled`: a cancel is in progress, and the caller must end the invocation as
 * cancelled. `stale`: the attempt is over, or there is no such invocation. `ended`: the invocation has ended. `full`:
 * the question's event would exceed the bound on the invocation's log, or on the logs of its family together.
 */
export type AskOutcome = (typeof ASK_OUTCOMES)[number];

/**
 * `not-waiting`: the invocation does not wait for an answer to that question (any more), an answer came after the end of the wait, or `expire`
 * was called before it. `unknown`: there is no such invocation.
 */
export type AnswerOutcome = 'ok' | 'not-waiting' | 'unknown';

/** Questions that invocations ask persons. Asking and answering are one Lua script each, so exactly one answer wins. */
export class Questions {
  readonly #store: Store;
  readonly #retention: Retention;

  constructor(store: Store, retention: Retention = DEFAULT_RETENTION) {
    this.#store = store;
    this.#retention = retention;
  }

  /**
   * Ends a running attempt. Its invocation waits for an answer to the question, which becomes event `seq` of its log. A repeated call for the same
   * epoch changes nothing.
   *
   * @throws SequenceGap like `Invocations.append`; QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  async ask(
    { id, tenant }: { readonly id: string; readonly tenant: string },
    epoch: number,
    seq: number,
    { text, schema, timeoutMs, state, handled }: AskedQuestion,
    usage: Usage | null,
  ): Promise<AskOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const { jobs, questions, tenantQuestions } = this.#store.keys;
    const { maxEvents, maxBytes, familyBytes } = this.#retention;
    const until = this.#store.clock() + timeoutMs;
    const data = { text, schema, until: new Date(until).toISOString() } satisfies Question;
    const reply = await this.#store.script(
      ASK,
      [...keys, `${jobs}:${id}`, `${jobs}:active`, `${jobs}:stalled`, questions, tenantQuestions(tenant)],
      [
        ...args,
        epoch,
        seq,
        'question',
        JSON.stringify(data),
        until,
        JSON.stringify(state),
        handled ?? '',
        meteredText(usage),
        maxEvents,
        maxBytes,
        familyBytes,
        MAX_INBOX_MESSAGES,
      ],
    );
    const outcome = ASK_OUTCOMES.find((one) => one === reply);
    if (outcome) return outcome;
    // Throws only for the reply of a full quota; for any other reply, the next line throws.
    throwBytesQuota(reply, this.#store.clock());
    throw gap(id, seq, reply) ?? unexpected('ask', reply);
  }

  /**
   * Answers the question of a waiting invocation, which then goes on in another attempt.
   *
   * @param value JSON text that the question's schema accepts.
   * @param seq number of the question's event; without it, the answer is for the current question.
   * @throws QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  answer(id: string, value: string, seq?: number): Promise<AnswerOutcome> {
    return this.#endWait(id, { tag: 'answered', val: value }, seq);
  }

  /** Continues an invocation whose question was not answered in time, in another attempt. */
  expire(id: string): Promise<AnswerOutcome> {
    return this.#endWait(id, { tag: 'expired' });
  }

  async #endWait(id: string, answer: Resumption['answer'], seq?: number): Promise<AnswerOutcome> {
    const { keys, clock } = this.#store;
    // The connection may send the script twice. The second run finds the reply of the first one under this key.
    const replyKey = keys.reply(randomUUID());
    // Tells the script the kind of the answer, so that it need not parse the answer's JSON text.
    const answeredFlag = answer.tag === 'answered' ? 1 : 0;
    const reply = await this.#store.script(
      ANSWER,
      [keys.invocation(id), keys.deadlines, keys.questions, `${keys.jobs}:${id}`, keys.arrivals, replyKey],
      [id, clock(), seq ?? '', JSON.stringify(answer), answeredFlag],
    );
    if (reply === 1) return 'ok';
    if (reply === 0) return 'not-waiting';
    if (reply === -1) return 'unknown';
    throwBytesQuota(reply, clock());
    throw unexpected('answer', reply);
  }
}
