import { LEARNED_MS, type Peak, peakPairs } from '../admission/job.ts';
import { throwBytesQuota } from '../quotas/exceeded.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { TurnCalls } from '../store/turn-calls.ts';
import { meteredText } from '../usage/metered.ts';
import { checkedData } from './appends.ts';
import { gap, tuple, unexpected } from './replies.ts';
import { type Retention, retentionArguments } from './retention.ts';
import type { FinishOutcome, NewEvent, TerminalEvent, Usage } from './types.ts';

/** The end of an invocation by its attempt. */
export interface AttemptEnd {
  readonly id: string;
  readonly epoch: number;
  /** Number of the terminal event. */
  readonly seq: number;
  /** Number of the log's last event, as the attempt knows it. */
  readonly after: number;
  /** The attempt's last events, which the log lacks; they follow `after`. */
  readonly events: readonly NewEvent[];
  /** Number of the last event that followers were shown. */
  readonly lastShownSeq: number;
  readonly terminal: TerminalEvent;
  readonly usage: Usage | null;
  /** Granted tokens beyond `usage` whose use may become known after the end, until `Invocations.settle`. */
  readonly lateTokens: number;
  /** Peak use of resources by the run; null when admission must not learn from this run. */
  readonly peak: Peak | null;
}

const FINISH = loadScript(new URL('./endings.lua', import.meta.url), 'finish');

/** Maximum ends in one script call, which takes Redis about a millisecond. */
const MAX_ENDS = 8;
/** Number of an attempt's last events that take Redis about as long as one end. */
const EVENTS_PER_END = 16;
/** Maximum characters of event data in one script call; a single end may have more. */
const MAX_LENGTH = 128 << 10;

/** Outcomes by the reply of `finish` of `endings.lua`. */
const OUTCOMES: Readonly<Record<number, FinishOutcome>> = {
  1: 'ok',
  0: 'stale',
  [-1]: 'ended',
  [-2]: 'full',
  [-6]: 'unwritten',
};
/** First element of the reply for an end whose script failed; the text of the error follows. */
const SCRIPT_ERROR = -5;

/** Ends invocations for the attempts of this process. The ends of one turn of the event loop share script calls, so that admission runs once. */
export class Ends {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #calls = new TurnCalls<AttemptEnd, FinishOutcome>({
    size: ({ terminal, events }) => {
      const length = events.reduce((sum, { data }) => sum + data.length, terminal.data.length);
      return Math.max((1 + events.length / EVENTS_PER_END) / MAX_ENDS, length / MAX_LENGTH);
    },
    call: (ends) => this.#call(ends),
  });

  constructor(store: Store, retention: Retention) {
    this.#store = store;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.finish`. */
  async finish(end: AttemptEnd): Promise<FinishOutcome> {
    for (const { data } of [...end.events, end.terminal]) checkedData(data);
    return this.#calls.run(end);
  }

  async #call(ends: readonly AttemptEnd[]): Promise<(() => FinishOutcome)[]> {
    const { keys } = this.#store;
    const now = this.#store.clock();
    const { familyBytes, maxEvents, maxBytes } = this.#retention;
    const args = [now, ...retentionArguments(this.#retention), familyBytes, LEARNED_MS, maxEvents, maxBytes];
    for (const { id, epoch, seq, after, events, lastShownSeq, terminal, usage, lateTokens, peak } of ends) {
      const failure = terminal.event === 'error' ? terminal : null;
      const failedStatus = failure?.code === 'cancelled' ? 'cancelled' : 'failed';
      const status = failure === null ? 'succeeded' : failedStatus;
      args.push(id, keys.live(id), keys.inboxChannel(id), epoch, seq, terminal.event, terminal.data, status);
      args.push(failure?.code ?? '', failure?.message ?? '', usage === null ? '' : JSON.stringify(usage));
      args.push(
        meteredText(usage),
        lateTokens,
        after,
        peak === null ? '' : JSON.stringify(peakPairs(peak)),
        lastShownSeq,
        events.length,
      );
      for (const { event, data } of events) args.push(event, data);
    }
    const endKeys = ends.flatMap(({ id }) => [keys.invocation(id), keys.events(id), keys.inbox(id)]);
    const replies = tuple(await this.#store.script(FINISH, [keys.deadlines, ...endKeys], args));
    return ends.map((end, i) => () => outcomeOf(end, replies[i], now));
  }
}

function outcomeOf({ id, seq }: AttemptEnd, reply: unknown, now: number): FinishOutcome {
  const outcome = typeof reply === 'number' ? OUTCOMES[reply] : undefined;
  if (outcome !== undefined) return outcome;
  if (Array.isArray(reply) && reply[0] === SCRIPT_ERROR) throw StoreError.from(new Error(String(reply[1])));
  throwBytesQuota(reply, now);
  throw gap(id, seq, reply) ?? unexpected('finish', reply);
}
