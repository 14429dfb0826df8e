import type { Channels } from '../store/channels.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';

/** One line of a function's log: a `log` event or the `error` that ended an invocation. */
export interface LogLine {
  /** Place in the log; reading goes on after it. */
  readonly cursor: string;
  readonly invocation: string;
  /** Number of the event within its invocation. */
  readonly seq: number;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly event: 'log' | 'error';
  /** JSON text of the event. */
  readonly data: string;
}

const READ_COUNT = 500;
const IDLE_READ_MS = 5000;

/** Logs of functions, over all their invocations: the last 2,000 lines or so, for a week. */
export class FunctionLogs {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** Lines after a cursor, oldest first; without one, the last `limit` lines. */
  async read(tenant: string, name: string, options: { after?: string; limit?: number } = {}): Promise<LogLine[]> {
    const key = this.#store.keys.logs(tenant, name);
    const limit = options.limit ?? READ_COUNT;
    const { after } = options;
    const entries = await this.#store.call((redis) =>
      after === undefined
        ? redis.xrevrange(key, '+', '-', 'COUNT', limit)
        : redis.xrange(key, `(${after}`, '+', 'COUNT', limit),
    );
    const lines = entries.map(parseLine);
    return after === undefined ? lines.reverse() : lines;
  }

  /** Lines after a cursor (`0-0` for all that is kept), then those that come, until the signal aborts. */
  async *follow(tenant: string, name: string, after: string, signal: AbortSignal): AsyncGenerator<LogLine> {
    const wakeup = new Wakeup();
    const wake = () => wakeup.set();
    const stop = await this.#channels.listen(this.#store.keys.logsChannel(tenant, name), {
      message: wake,
      resumed: wake,
    });
    try {
      let cursor = after;
      while (!signal.aborted) {
        const lines = await this.read(tenant, name, { after: cursor });
        for (const line of lines) {
          cursor = line.cursor;
          yield line;
        }
        if (lines.length < READ_COUNT) await wakeup.wait(IDLE_READ_MS, signal);
      }
    } finally {
      stop();
    }
  }
}

function parseLine([cursor, fields]: [id: string, fields: string[]]): LogLine {
  const value = (name: string): string => fields[fields.indexOf(name) + 1] ?? '';
  return {
    cursor,
    invocation: value('i'),
    seq: Number(value('s')),
    at: Number(value('t')),
    event: value('e') === 'error' ? 'error' : 'log',
    data: value('d'),
  };
}
