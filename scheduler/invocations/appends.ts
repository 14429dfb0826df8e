import { type Metered, parseMetered, throwBytesQuota } from '../quotas/exceeded.ts';
import { askText, type TokenAsk } from '../quotas/grants.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { TurnCalls } from '../store/turn-calls.ts';
import { meteredText } from '../usage/metered.ts';
import { gap, tuple, unexpected, unmetered } from './replies.ts';
import type { Retention } from './retention.ts';
import type { AppendOutcome, NewEvent, Usage } from './types.ts';

/** One write of an attempt: numbered events, and the usage at the last of them. */
export interface AttemptWrite {
  readonly id: string;
  readonly epoch: number;
  /** Number of the first event; 0 without events. */
  readonly firstSeq: number;
  /** At most `MAX_EVENTS` events. */
  readonly events: readonly NewEvent[];
  /** Cumulative usage of the attempt. */
  readonly usage: Usage | undefined;
  /** Tokens that the attempt asks for with its usage; null leaves its ceiling as it is. */
  readonly ask?: TokenAsk | null;
  /** True when the attempt shows its events to followers itself; the store then does not publish them. */
  readonly showsOwnEvents: boolean;
}

const APPEND = loadScript(new URL('./log.lua', import.meta.url), 'append');

/**
 * Maximum events past the log's last one that an attempt may show before it writes them. Their numbers are reserved: no
 * other event gets them, unless Redis loses writes.
 */
export const SHOWN_AHEAD = 512;
/** Maximum events of one script call. */
export const MAX_EVENTS = 1000;
/** Characters of events of one script call, unless one write alone has more. All other Redis calls wait for the script. */
const MAX_LENGTH = 128 << 10;
/** Maximum writes of one script call. */
const MAX_WRITES = 128;

/**
 * Batches the log writes of all attempts of a process. The writes of one turn of the event loop go to Redis in one script call, which reads
 * and counts each tenant's data once. Each write gets its own answer: a refused or failed write does not affect the others.
 */
export class Appends {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #calls = new TurnCalls<AttemptWrite, Metered<AppendOutcome>>({
    size: ({ events }) => {
      const length = events.reduce((sum, { data }) => sum + data.length, 0);
      return Math.max(1 / MAX_WRITES, events.length / MAX_EVENTS, length / MAX_LENGTH);
    },
    call: (writes) => this.#call(writes),
  });

  constructor(store: Store, retention: Retention) {
    this.#store = store;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.append`. */
  async write(write: AttemptWrite): Promise<Metered<AppendOutcome>> {
    for (const { data } of write.events) checkedData(data);
    return this.#calls.run(write);
  }

  async #call(writes: readonly AttemptWrite[]): Promise<(() => Metered<AppendOutcome>)[]> {
    const { keys } = this.#store;
    const { maxEvents, maxBytes, logLines, logMs, familyBytes } = this.#retention;
    const now = this.#store.clock();
    const args: (string | number)[] = [now, maxEvents, maxBytes, logLines, logMs, familyBytes, SHOWN_AHEAD];
    for (const { id, epoch, firstSeq, events, usage, ask = null, showsOwnEvents } of writes) {
      args.push(showsOwnEvents ? '' : keys.live(id), epoch, firstSeq, meteredText(usage), askText(ask), events.length);
      for (const { event, data } of events) args.push(event, data);
    }
    const writeKeys = writes.flatMap(({ id }) => [keys.invocation(id), keys.events(id)]);
    const replies = tuple(await this.#store.script(APPEND, writeKeys, args));
    return writes.map((write, i) => () => answerOf(write, replies[i], now));
  }
}

/** The answer to one write. The header of `append` of `log.lua` lists the replies. */
function answerOf({ id, firstSeq }: AttemptWrite, reply: unknown, now: number): Metered<AppendOutcome> {
  if (reply === 1) return unmetered('ok');
  if (reply === 0) return unmetered('stale');
  if (reply === -1) return unmetered('ended');
  if (reply === -2) return unmetered('full');
  const [code, ...rest] = tuple(reply);
  if (code === 1) return { outcome: 'ok', ...parseMetered(rest, now) };
  if (code === -5) throw StoreError.from(new Error(String(rest[0])));
  throwBytesQuota(reply, now);
  throw gap(id, firstSeq, reply) ?? unexpected('append', reply);
}

/** Rejects NUL, which separates the parts of live messages and cannot occur in JSON text. */
export function checkedData(data: string): string {
  if (data.includes('\0')) throw new StoreError('invalid-argument', 'The data of an event must be JSON text.');
  return data;
}
