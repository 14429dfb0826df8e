import { setImmediate as nextTurn } from 'node:timers/promises';
import { type FunctionLogs, LOG_BEGINNING, type LogLine } from '#scheduler/invocations/function-logs.ts';
import { hasEnded, type InvocationStatus } from '#scheduler/invocations/types.ts';
import type { LogEntry, LogLevel, LogOptions } from '../app/control.ts';
import type { Memory } from '../app/http/bodies.ts';

const SEVERITY: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Lines per read, divided among all logs that are read together. */
const PAGE = 500;
const SMALLEST_PAGE = 20;
/** Target for the characters of one read, estimated from the lines of the page before: a line may have 16 Ki characters. */
const PAGE_CHARACTERS = 256 * 1024;
/** Number of logs whose first lines are read together. */
const OPENED_AT_ONCE = 8;
/** A character takes up to this many bytes. */
const CHARACTER_BYTES = 2;
/** Bytes of a line's other members. */
const LINE_BYTES = 256;
/** Memory for following one log. */
const FOLLOWED_BYTES = 512;
/** Maximum lines that one request examines, so that a filter without matches ends. Looking up states costs more. */
const MAX_EXAMINED = 100_000;
const MAX_STATE_LOOKUPS = 20_000;
/** Maximum characters of past lines in one answer; the newest lines stay. */
const MAX_CHARACTERS = 4 * 2 ** 20;
/** Longest time for which a request examines lines without a break; other requests then have their turn. */
const SLICE_MS = 10;
/** Number of lines whose invocations' states are looked up in one call. */
const BATCH = 200;
/** Maximum states of ended invocations that a filter remembers. */
const MAX_REMEMBERED = 10_000;

export interface LogSource {
  readonly logs: FunctionLogs;
  readonly tenant: string;
  /** One function, or all functions that the tenant has at the time of the call. */
  readonly names: () => Promise<readonly string[]>;
  /** The states of invocations, in order; null for an invocation that the store no longer has. */
  readonly statuses: (invocations: readonly string[]) => Promise<readonly (InvocationStatus | null)[]>;
}

/**
 * Log lines that pass the filters: the last `limit` lines after the cursor, oldest first, and fewer when they exceed 4 Mi characters. With
 * `follow`, then live lines until the signal aborts. Lines of several functions come in the order of their time.
 *
 * @param memory counts the lines that wait for the reader, and the logs that it follows
 * @throws StoreError, and the errors of `memory`
 */
export async function* readLogs(
  source: LogSource,
  options: LogOptions,
  signal: AbortSignal,
  memory?: Memory,
): AsyncGenerator<LogEntry, void, undefined> {
  const heldLines = new HeldLines(memory);
  try {
    yield* readFiltered(source, options, signal, heldLines);
  } finally {
    heldLines.free();
  }
}

async function* readFiltered(
  source: LogSource,
  options: LogOptions,
  signal: AbortSignal,
  heldLines: HeldLines,
): AsyncGenerator<LogEntry, void, undefined> {
  const filter = new LogFilter(source, options);
  const names = await source.names();
  const logs = await openLogs(
    names,
    (name) => BackwardReader.open(source, name, options, names.length, heldLines),
    signal,
  );
  const newest = new Map(logs.map((log) => [log.name, log.newest]));
  const pastEntries: LogEntry[] = [];
  let characters = 0;
  const [maxLines, batchSize] = options.status === undefined ? [MAX_EXAMINED, 1] : [MAX_STATE_LOOKUPS, BATCH];
  let sliceEndsAt = performance.now() + SLICE_MS;
  for (
    let examinedCount = 0, hasMore = true;
    hasMore &&
    pastEntries.length < options.limit &&
    characters < MAX_CHARACTERS &&
    examinedCount < maxLines &&
    !signal.aborted;
  ) {
    const lines: LogLine[] = [];
    while (hasMore && lines.length < batchSize && examinedCount < maxLines && !signal.aborted) {
      const line = await takeNewest(logs);
      if (line === null) hasMore = false;
      else lines.push(line);
      examinedCount += 1;
      // Lines of pages in memory arrive without a pause, and with many logs these are thousands.
      if (performance.now() > sliceEndsAt) {
        await nextTurn();
        sliceEndsAt = performance.now() + SLICE_MS;
      }
    }
    for (const entry of await filter.pass(lines)) {
      characters += entry.message.length;
      heldLines.hold(sizeOf(entry.message.length));
      pastEntries.push(entry);
    }
  }
  for (const log of logs.splice(0)) log.close();
  yield* pastEntries.splice(0).slice(0, options.limit).reverse();
  heldLines.free();
  if (!options.follow) return;
  heldLines.hold(FOLLOWED_BYTES * names.length);
  const memoryHooks = {
    read: (lines: readonly LogLine[]) => heldLines.hold(totalBytes(lines)),
    passed: (line: LogLine) => heldLines.give(totalBytes([line])),
  };
  for await (const line of source.logs.follow(source.tenant, source.names, newest, signal, memoryHooks))
    yield* await filter.pass([line]);
}

/** Opens logs, a few at once. */
async function openLogs(
  names: readonly string[],
  openLog: (name: string) => Promise<BackwardReader>,
  signal: AbortSignal,
): Promise<BackwardReader[]> {
  const logs: BackwardReader[] = [];
  for (let at = 0; at < names.length && !signal.aborted; at += OPENED_AT_ONCE) {
    // Wait for every read of the group, also after one has failed: a read that ends later would take memory that the stream no longer frees.
    const results = await Promise.allSettled(names.slice(at, at + OPENED_AT_ONCE).map(openLog));
    for (const each of results) {
      if (each.status === 'rejected') throw each.reason;
      logs.push(each.value);
    }
  }
  return logs;
}

/** Memory that one call of `readLogs` holds, over all logs that it reads. */
class HeldLines {
  readonly #memory: Memory | undefined;
  #bytes = 0;

  constructor(memory: Memory | undefined) {
    this.#memory = memory;
  }

  hold(bytes: number): void {
    this.#memory?.hold(bytes);
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#memory?.give(bytes);
    this.#bytes -= bytes;
  }

  free(): void {
    this.give(this.#bytes);
  }
}

function sizeOf(characters: number): number {
  return CHARACTER_BYTES * characters + LINE_BYTES;
}

function totalBytes(lines: readonly LogLine[]): number {
  return lines.reduce((sum, { data }) => sum + sizeOf(data.length), 0);
}

/** Removes and returns the newest line of all logs. */
async function takeNewest(logs: readonly BackwardReader[]): Promise<LogLine | null> {
  let newest: BackwardReader | undefined;
  for (const log of logs) {
    if (log.head !== null && (newest === undefined || log.isNewerThan(newest))) newest = log;
  }
  const line = newest?.head ?? null;
  await newest?.advance();
  return line;
}

/** One log, read from its end. */
class BackwardReader {
  readonly name: string;
  /** Cursor after which following starts. */
  newest: string;
  head: LogLine | null = null;
  readonly #source: LogSource;
  readonly #after: string;
  readonly #pageSize: number;
  readonly #heldLines: HeldLines;
  #lines: LogLine[] = [];
  /** The parts of the head's cursor: each line is compared with the heads of all logs. */
  #headMs = 0;
  #headSequence = 0;
  /** Bytes held of the page. */
  #bytes = 0;
  /** Mean characters of the lines of the last page. */
  #meanCharacters = PAGE_CHARACTERS / SMALLEST_PAGE;
  #beforeCursor: string | undefined;
  #hasMore = true;

  private constructor(
    source: LogSource,
    name: string,
    after: string,
    beforeCursor: string | undefined,
    pageSize: number,
    heldLines: HeldLines,
  ) {
    this.#source = source;
    this.#heldLines = heldLines;
    this.name = name;
    this.newest = after;
    this.#after = after;
    this.#beforeCursor = beforeCursor;
    this.#pageSize = pageSize;
  }

  static async open(
    source: LogSource,
    name: string,
    options: LogOptions,
    logCount: number,
    heldLines: HeldLines,
  ): Promise<BackwardReader> {
    const { cursor, sinceMs = 0, untilMs } = options;
    const since = sinceMs > 0 ? `${sinceMs - 1}-${MAX_SEQUENCE}` : LOG_BEGINNING;
    const pageSize = Math.max(SMALLEST_PAGE, Math.floor(PAGE / Math.max(1, logCount)));
    const log = new BackwardReader(
      source,
      name,
      laterCursor(since, cursor === null ? LOG_BEGINNING : cursorFor(cursor, name)),
      untilMs === undefined ? undefined : `${untilMs}-0`,
      pageSize,
      heldLines,
    );
    await log.advance();
    if (log.head !== null) log.newest = log.head.cursor;
    return log;
  }

  async advance(): Promise<void> {
    if (this.#lines.length === 0 && this.#hasMore) await this.#readPage();
    this.head = this.#lines.pop() ?? null;
    const [ms = 0, sequence = 0] = this.head?.cursor.split('-').map(Number) ?? [];
    this.#headMs = ms;
    this.#headSequence = sequence;
  }

  /** Orders the heads of two logs by cursor, then by function. */
  isNewerThan(other: BackwardReader): boolean {
    if (this.#headMs !== other.#headMs) return this.#headMs > other.#headMs;
    if (this.#headSequence !== other.#headSequence) return this.#headSequence > other.#headSequence;
    return this.name > other.name;
  }

  close(): void {
    this.#lines = [];
    this.#hasMore = false;
    this.#holdBytes(0);
  }

  async #readPage(): Promise<void> {
    const { logs, tenant } = this.#source;
    const limit = Math.min(this.#pageSize, Math.max(SMALLEST_PAGE, Math.floor(PAGE_CHARACTERS / this.#meanCharacters)));
    const lines = await logs.newest(tenant, this.name, { after: this.#after, before: this.#beforeCursor, limit });
    this.#holdBytes(totalBytes(lines));
    this.#lines = lines.reverse();
    this.#beforeCursor = this.#lines[0]?.cursor ?? this.#beforeCursor;
    this.#hasMore = this.#lines.length === limit;
    this.#meanCharacters = Math.max(1, this.#bytes / CHARACTER_BYTES / Math.max(1, lines.length));
  }

  #holdBytes(bytes: number): void {
    this.#heldLines.give(this.#bytes);
    this.#bytes = 0;
    this.#heldLines.hold(bytes);
    this.#bytes = bytes;
  }
}

const MAX_SEQUENCE = '18446744073709551615';

/**
 * The position in the log `name` after which the lines follow that are newer than `cursor` (`<ms>-<sequence>@<function>`). Lines with equal ms
 * and sequence are in order of function name, so the log of a later function still has to return its line at the cursor's position.
 */
function cursorFor(cursor: string, name: string): string {
  const [position = LOG_BEGINNING, cursorFunction] = cursor.split('@');
  if (cursorFunction === undefined || name <= cursorFunction) return position;
  const [ms = '0', sequence = '0'] = position.split('-');
  if (sequence !== '0') return `${ms}-${BigInt(sequence) - 1n}`;
  return ms === '0' ? LOG_BEGINNING : `${BigInt(ms) - 1n}-${MAX_SEQUENCE}`;
}

function laterCursor(a: string, b: string): string {
  const [aMs = '0', aSeq = '0'] = a.split('-');
  const [bMs = '0', bSeq = '0'] = b.split('-');
  if (BigInt(aMs) !== BigInt(bMs)) return BigInt(aMs) > BigInt(bMs) ? a : b;
  return BigInt(aSeq) > BigInt(bSeq) ? a : b;
}

/** Selects the lines that pass the filters. */
class LogFilter {
  readonly #source: LogSource;
  readonly #options: LogOptions;
  readonly #search: string | undefined;
  /** States of ended invocations, which no longer change. */
  readonly #endedStatuses = new Map<string, InvocationStatus | null>();

  constructor(source: LogSource, options: LogOptions) {
    this.#source = source;
    this.#options = options;
    this.#search = options.search?.toLowerCase();
  }

  /** The lines that pass, as entries. */
  async pass(lines: readonly LogLine[]): Promise<LogEntry[]> {
    const { invocation, status } = this.#options;
    const entries = lines
      .filter((line) => invocation === undefined || line.invocation === invocation)
      .map(toEntry)
      .filter((entry) => this.#fits(entry));
    if (status === undefined || entries.length === 0) return entries;
    const states = await this.#statesOf(new Set(entries.map((entry) => entry.invocation)));
    return entries.filter((entry) => states.get(entry.invocation) === status);
  }

  #fits(entry: LogEntry): boolean {
    if (SEVERITY[entry.level] < SEVERITY[this.#options.level]) return false;
    return this.#search === undefined || entry.message.toLowerCase().includes(this.#search);
  }

  async #statesOf(invocations: ReadonlySet<string>): Promise<Map<string, InvocationStatus | null>> {
    const states = new Map<string, InvocationStatus | null>();
    const lookupIds: string[] = [];
    for (const invocation of invocations) {
      const knownStatus = this.#endedStatuses.get(invocation);
      if (knownStatus === undefined) lookupIds.push(invocation);
      else states.set(invocation, knownStatus);
    }
    if (lookupIds.length === 0) return states;
    if (this.#endedStatuses.size + lookupIds.length > MAX_REMEMBERED) this.#endedStatuses.clear();
    const foundStatuses = await this.#source.statuses(lookupIds);
    for (const [i, invocation] of lookupIds.entries()) {
      const status = foundStatuses[i] ?? null;
      states.set(invocation, status);
      if (status === null || hasEnded(status)) this.#endedStatuses.set(invocation, status);
    }
    return states;
  }
}

function toEntry(line: LogLine): LogEntry {
  const data = JSON.parse(line.data);
  const origin = {
    cursor: `${line.cursor}@${line.function}`,
    function: line.function,
    invocation: line.invocation,
    time: new Date(line.at).toISOString(),
  };
  if (line.event === 'error') return { ...origin, level: 'error', message: `${data.code}: ${data.message}` };
  const level: LogLevel = Object.hasOwn(SEVERITY, data.level) ? data.level : 'info';
  return { ...origin, level, message: String(data.message) };
}
