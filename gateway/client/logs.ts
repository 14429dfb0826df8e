import { MAX_LOG_LINES } from '../app/bounds.ts';
import type { LogEntry } from '../app/control.ts';
import { timeMs } from '../app/http/request-options.ts';
import type { LogQuery as Query } from '../app/schemas/invocations.ts';
import { PieError } from './errors.ts';
import { type Frame, readFrames } from './event-source.ts';
import { type CallOptions, common, type Http, pause, queryOf, withQuery } from './http.ts';

export interface LogQuery extends CallOptions, Partial<Query> {}

/** Stored lines of a function, or of all functions when `name` is null; oldest first. */
export async function readLogs(http: Http, name: string | null, query: LogQuery): Promise<readonly LogEntry[]> {
  return (await http.json<{ logs: LogEntry[] }>(logsPath(name, query), common(query))).logs;
}

/** Past lines, then live ones until the signal aborts or the caller stops. Reconnects after a broken connection. */
export async function* followLogs(
  http: Http,
  name: string | null,
  query: LogQuery,
): AsyncGenerator<LogEntry, void, undefined> {
  const { after, limit, since, ...filters } = query;
  const headers = { ...common(query).headers, accept: 'text/event-stream' };
  // The query after a reconnect asks for all missed lines, up to the largest limit: by default, the gateway sends only the newest ones. It has
  // no `since`: the gateway counts a duration such as `10s` back from each request, and so would leave out lines of a longer break.
  const queryAfter = (entry: LogEntry): LogQuery => ({ ...filters, after: entry.cursor, limit: MAX_LOG_LINES });
  let nextQuery = query;
  for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
    const response = await http.retrying(
      () => http.request(logsPath(name, nextQuery), { ...common(query), headers }),
      query.signal,
    );
    try {
      for await (const frame of readFrames(response.body ?? emptyBody(), {
        idleTimeoutMs: http.idleTimeoutMs,
        signal: query.signal,
      })) {
        if (frame.event !== 'log') continue;
        const entry = entryOf(frame);
        nextQuery = queryAfter(entry);
        pauseMs = 50;
        yield entry;
      }
    } catch (error) {
      if (error instanceof PieError && error.code === 'bad-response') throw error;
      // The stream broke, or the signal aborted. After an abort, `pause` throws.
    }
    await pause(pauseMs, query.signal);
    const openedMs = serverTimeOf(response);
    if (nextQuery !== query || openedMs === null) continue;
    // The first stream broke before its first line. Read the lines that were past when it opened, then follow all lines since then.
    const sinceMs = since === undefined ? null : timeMs(since, openedMs);
    const pastQuery = { ...query, until: isoTime(openedMs), ...(sinceMs !== null && { since: isoTime(sinceMs) }) };
    nextQuery = {
      ...filters,
      ...(after !== undefined && { after }),
      since: isoTime(Math.max(openedMs, sinceMs ?? 0)),
      limit: MAX_LOG_LINES,
    };
    for (const entry of await http.retrying(() => readLogs(http, name, pastQuery), query.signal)) {
      nextQuery = queryAfter(entry);
      yield entry;
    }
  }
}

/**
 * Time of an answer, in ms since the epoch; null when the server does not state it. The gateway reads times and durations of queries by its own
 * clock, from which this machine's clock may differ.
 */
function serverTimeOf(response: Response): number | null {
  const ms = Date.parse(response.headers.get('date') ?? '');
  return Number.isNaN(ms) ? null : ms;
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

function entryOf({ data }: Frame): LogEntry {
  try {
    return JSON.parse(data) as LogEntry;
  } catch (cause) {
    throw new PieError('bad-response', 'A line of the log is not JSON.', { cause });
  }
}

function logsPath(name: string | null, query: LogQuery): string {
  return withQuery(name === null ? '/v1/logs' : `/v1/functions/${encodeURIComponent(name)}/logs`, queryOf(query));
}

function emptyBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
