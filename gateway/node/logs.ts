import type { FunctionLogs, LogLine } from '#scheduler/invocations/function-logs.ts';
import type { LogEntry, LogLevel, LogOptions } from '../app/control.ts';

const SEVERITY: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Before every line. */
const BEGINNING = '0-0';
/** Lines of one read; the store keeps about 2,000 for a function. */
const PAGE = 1000;

/**
 * Log lines of a function that pass the filters: the last `limit` of those after the cursor, then, when following, those that come until
 * the signal aborts.
 */
export async function* readLogs(
  logs: FunctionLogs,
  tenant: string,
  name: string,
  options: LogOptions,
  signal: AbortSignal,
): AsyncGenerator<LogEntry, void, undefined> {
  const wanted = (entry: LogEntry) =>
    SEVERITY[entry.level] >= SEVERITY[options.level] &&
    (options.invocation === undefined || entry.invocation === options.invocation);

  let cursor = options.cursor ?? BEGINNING;
  let past: LogEntry[] = [];
  for (;;) {
    const lines = await logs.read(tenant, name, { after: cursor, limit: PAGE });
    cursor = lines.at(-1)?.cursor ?? cursor;
    past = past.concat(lines.map(toEntry).filter(wanted)).slice(-Math.max(options.limit, 1));
    if (lines.length < PAGE || signal.aborted) break;
  }
  if (options.limit > 0) yield* past;
  if (!options.follow) return;
  for await (const line of logs.follow(tenant, name, cursor, signal)) {
    const entry = toEntry(line);
    if (wanted(entry)) yield entry;
  }
}

function toEntry(line: LogLine): LogEntry {
  const data = JSON.parse(line.data);
  const place = { cursor: line.cursor, invocation: line.invocation, time: new Date(line.at).toISOString() };
  if (line.event === 'error') return { ...place, level: 'error', message: `${data.code}: ${data.message}` };
  const level: LogLevel = Object.hasOwn(SEVERITY, data.level) ? data.level : 'info';
  return { ...place, level, message: String(data.message) };
}
