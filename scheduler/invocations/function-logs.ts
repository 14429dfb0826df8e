import type { Channels } from '../store/channels.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';

/** One line of a function's log: a `log` event or the `error` that ended an invocation. */
export interface LogLine {
  /** Position in the log; pass it as `after` to read on. */
  readonly cursor: string;
  readonly function: string;
  readonly invocation: string;
  /** Number of the event within its invocation. */
  readonly seq: number;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly event: 'log' | 'error';
  /** JSON text of the event. */
  readonly data: string;
}

/** A part of a log. Cursors are `<ms>-<number>`; `<ms>-0` is the first cursor of that time. */
export interface LogRange {
  /** Only lines after this cursor. */
  readonly after?: string | undefined;
  /** Only lines before this cursor. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** Observes which lines wait for a reader: those that were read and that the reader has yet to take. */
export interface WaitingLines {
  /** These lines were read. */
  read(lines: readonly LogLine[]): void;
  /** The reader has taken a line. */
  passed(line: LogLine): void;
}

/** Cursor before every line. */
export const LOG_BEGINNING = '0-0';
/** Lines of one read. A stalled reader keeps them in memory. */
const READ_COUNT = 64;
/** Interval at which a reader looks for new functions and reads the next few logs in turn, since wake-ups can be lost. */
const IDLE_READ_MS = 5000;
/** Logs that a reader reads in turn per interval. Hundreds of readers that each read all logs of a large tenant would keep Redis busy. */
const IDLE_READ_LOGS = 16;

/**
 * Logs of functions. The log of a function has lines of all its invocations: by default about the last 2,000 lines, none older than a week.
 */
export class FunctionLogs {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** The first lines of a range, oldest first. */
  async oldest(tenant: string, name: string, { after = LOG_BEGINNING, before, limit }: LogRange): Promise<LogLine[]> {
    const key = this.#store.keys.logs(tenant, name);
    const entries = await this.#store.call((redis) =>
      redis.xrange(key, `(${after}`, before === undefined ? '+' : `(${before}`, 'COUNT', limit),
    );
    return entries.map((entry) => parseLine(name, entry));
  }

  /** The last lines of a range, newest first. */
  async newest(tenant: string, name: string, { after = LOG_BEGINNING, before, limit }: LogRange): Promise<LogLine[]> {
    const key = this.#store.keys.logs(tenant, name);
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(key, before === undefined ? '+' : `(${before}`, `(${after}`, 'COUNT', limit),
    );
    return entries.map((entry) => parseLine(name, entry));
  }

  /**
   * Yields the lines of several functions as they come, until the signal aborts. Lines of one function come in order.
   *
   * @param names the functions; called again every few seconds to pick up new ones.
   * @param cursors start cursor by function; a function without one is read from its oldest kept line.
   * @param waitingLines observes the lines that wait for the reader; an error that its `read` throws ends the iteration.
   */
  async *follow(
    tenant: string,
    names: () => Promise<readonly string[]>,
    cursors: Map<string, string>,
    signal: AbortSignal,
    waitingLines?: WaitingLines,
  ): AsyncGenerator<LogLine> {
    const wakeup = new Wakeup();
    const changedNames = new Set<string>();
    const stops = new Map<string, () => void>();
    let idleIndex = 0;
    try {
      while (!signal.aborted) {
        for (const name of await names()) {
          if (stops.has(name)) continue;
          changedNames.add(name);
          const wake = () => {
            changedNames.add(name);
            wakeup.set();
          };
          const channel = this.#store.keys.logsChannel(tenant, name);
          stops.set(name, await this.#channels.listen(channel, { message: wake, resumed: wake }));
        }
        const idleReadAt = performance.now() + IDLE_READ_MS;
        const leftMs = () => Math.max(0, idleReadAt - performance.now());
        // Until the interval ends, reads the changed logs, and waits for a wake-up when none has changed.
        do {
          for (const name of changedNames) {
            // The loop may never end on its own: new lines may arrive faster than it reads them.
            if (signal.aborted) return;
            changedNames.delete(name);
            const lines = await this.oldest(tenant, name, { after: cursors.get(name), limit: READ_COUNT });
            waitingLines?.read(lines);
            if (lines.length === READ_COUNT) changedNames.add(name);
            for (const line of lines) {
              cursors.set(name, line.cursor);
              yield line;
              waitingLines?.passed(line);
            }
          }
        } while (!signal.aborted && leftMs() > 0 && (changedNames.size > 0 || (await wakeup.wait(leftMs(), signal))));
        const nextIndex = idleIndex + IDLE_READ_LOGS;
        for (const name of [...stops.keys()].slice(idleIndex, nextIndex)) changedNames.add(name);
        idleIndex = nextIndex < stops.size ? nextIndex : 0;
      }
    } finally {
      for (const stop of stops.values()) stop();
    }
  }
}

/** Parses a stream entry, whose fields `log.lua` writes. */
function parseLine(name: string, [cursor, fields]: [id: string, fields: string[]]): LogLine {
  const value = (field: string): string => fields[fields.indexOf(field) + 1] ?? '';
  return {
    cursor,
    function: name,
    invocation: value('i'),
    seq: Number(value('s')),
    at: Number(value('t')),
    event: value('e') === 'error' ? 'error' : 'log',
    data: value('d'),
  };
}
