import type { InvocationStatus, LogEntry, LogLevel } from '../app/control.ts';
import { type CallOptions, common } from './calls.ts';
import { PieError } from './errors.ts';
import { type Frame, readFrames } from './event-source.ts';
import { type Http, pause } from './http.ts';

export interface LogQuery extends CallOptions {
  /** Maximum past lines. */
  readonly limit?: number;
  /** Least severe level. */
  readonly level?: LogLevel;
  readonly invocation?: string;
  /** Only lines of invocations that are in this state now. */
  readonly status?: InvocationStatus;
  /** Only lines that contain this text, ignoring case. */
  readonly search?: string;
  /** Only lines from this time on: ISO 8601, or a duration before now (`10m`). */
  readonly since?: string;
  /** Only lines before this time; not when following. */
  readonly until?: string;
  /** Only lines after this cursor. */
  readonly after?: string;
}

/** The gateway's maximum of past lines. */
const MOST_LINES = 10_000;

/** Stored lines of a function, or of all functions when null; oldest first. */
export async function readLogs(http: Http, name: string | null, query: LogQuery): Promise<readonly LogEntry[]> {
  return (await http.json<{ logs: LogEntry[] }>(logsPath(name, query), common(query))).logs;
}

/** Past lines, then live ones until the signal aborts or the caller stops. Reconnects after a broken connection. */
export async function* followLogs(
  http: Http,
  name: string | null,
  { after, limit: most, since: begin, ...query }: LogQuery,
): AsyncGenerator<LogEntry, void, undefined> {
  let cursor = after;
  let limit = most;
  let since = begin;
  for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
    const path = logsPath(name, {
      ...query,
      ...(cursor === undefined ? {} : { after: cursor }),
      ...(limit === undefined ? {} : { limit }),
      ...(since === undefined ? {} : { since }),
    });
    const response = await http.retrying(
      () =>
        http.request(path, { ...common(query), headers: { ...common(query).headers, accept: 'text/event-stream' } }),
      query.signal,
    );
    try {
      for await (const frame of readFrames(response.body ?? emptyBody(), {
        idleTimeoutMs: http.idleTimeoutMs,
        signal: query.signal,
      })) {
        if (frame.event !== 'log') continue;
        const entry = entryOf(frame);
        cursor = entry.cursor;
        // After a reconnect, fetch all missed lines: without a limit, the gateway sends only the newest ones.
        limit = MOST_LINES;
        // The gateway counts a duration such as `10s` from each request: lines of a longer break would be too old.
        since = undefined;
        pauseMs = 50;
        yield entry;
      }
    } catch (error) {
      if (error instanceof PieError && error.code === 'bad-response') throw error;
      // The stream broke or the signal aborted: `pause` throws in the latter case.
    }
    await pause(pauseMs, query.signal);
  }
}

function entryOf({ data }: Frame): LogEntry {
  try {
    return JSON.parse(data) as LogEntry;
  } catch (cause) {
    throw new PieError('bad-response', 'A line of the log is not JSON.', { cause });
  }
}

function logsPath(name: string | null, query: LogQuery): string {
  const search = new URLSearchParams();
  for (const key of ['limit', 'level', 'invocation', 'status', 'search', 'since', 'until', 'after'] as const) {
    const value = query[key];
    if (value !== undefined) search.set(key, String(value));
  }
  const path = name === null ? '/v1/logs' : `/v1/functions/${encodeURIComponent(name)}/logs`;
  return `${path}${search.size === 0 ? '' : `?${search}`}`;
}

function emptyBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
