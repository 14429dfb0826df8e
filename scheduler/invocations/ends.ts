import { LEARNED_MS, type Peak, peakPairs } from '../admission/learned.ts';
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
  /** Number of the log's last event. */
  readonly after: number;
  /** The attempt's last events, which the log lacks; they follow `after`. */
  readonly events: readonly NewEvent[];
  /** Number of the last event that followers were shown. */
  readonly lastShownSeq: number;
  readonly terminal: TerminalEvent;
  readonly usage: Usage | null;
  /** Peak use of resources by the run; null when admission must not learn from this run. */
  readonly peak: Peak | null;
}

const FINISH = loadScript(new URL('./scripts/finish.lua', import.meta.url));

/** Maximum ends in one script call. They take Redis about a millisecond. */
const MAX_ENDS = 8;
/** Number of an attempt's last events that take Redis about as long as one end. */
const EVENTS_PER_END = 16;
/** Characters of events of one script call, unless one end alone has more. */
const MAX_LENGTH = 128 << 10;

/** Ends the invocations of a process's attempts. The ends of one turn of the event loop share script calls, so that admission runs once. */
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
    for (const { id, epoch, seq, after, events, lastShownSeq, terminal, usage, peak } of ends) {
      const failure = terminal.event === 'error' ? terminal : null;
      const status = failure === null ? 'succeeded' : failure.code === 'cancelled' ? 'cancelled' : 'failed';
      args.push(id, keys.live(id), keys.inboxChannel(id), epoch, seq, terminal.event, terminal.data, status);
      args.push(failure?.code ?? '', failure?.message ?? '', usage === null ? '' : JSON.stringify(usage));
      args.push(
        meteredText(usage),
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
  if (reply === 1) return 'ok';
  if (reply === 0) return 'stale';
  if (reply === -1) return 'ended';
  if (reply === -2) return 'full';
  if (reply === -6) return 'unwritten';
  if (Array.isArray(reply) && reply[0] === -5) throw StoreError.from(new Error(String(reply[1])));
  throwBytesQuota(reply, now);
  throw gap(id, seq, reply) ?? unexpected('finish', reply);
}
