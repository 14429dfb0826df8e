import { setImmediate as nextTurn } from 'node:timers/promises';
import { type FunctionLogs, LOG_BEGINNING, type LogLine } from '#scheduler/invocations/log.ts';
import { hasEnded, type InvocationStatus } from '#scheduler/invocations/types.ts';
import { LEVELS } from '../app/bounds.ts';
import type { LogEntry, LogLevel, LogOptions, Memory } from '../app/control.ts';

/** Lines that a request fetches at once from Redis, divided among its logs. */
const PAGE_LINES = 500;
/** Minimum lines of one read of a log, however many logs the request reads. */
const SMALLEST_PAGE_LINES = 20;
/** Target for the characters of one read, estimated from the log's previous page: lines differ in size, up to 16 Ki characters. */
const PAGE_CHARACTERS = 256 * 1024;
/** Number of logs whose first pages are read at once. */
const OPENED_AT_ONCE = 8;
/** Bytes of memory that a character takes, at most. */
const CHARACTER_BYTES = 2;
/** Bytes of memory of a line without its text, by estimate. */
const LINE_BYTES = 256;
/** Bytes of memory for following one log, by estimate. */
const FOLLOWED_BYTES = 512;
/** Maximum past lines that one request examines, so that a filter without matches ends. */
const MAX_EXAMINED = 100_000;
/** Maximum past lines that a request with a filter by state examines: it must look up the states. */
const MAX_EXAMINED_WITH_STATES = 20_000;
/** Maximum characters of past lines in one answer; the newest lines stay. */
const MAX_CHARACTERS = 4 * 2 ** 20;
/** Longest time for which a request examines lines without a break; other requests then have their turn. */
const SLICE_MS = 10;
/** Number of past lines whose invocations' states are looked up in one call. */
const STATE_BATCH = 200;
/** Maximum invocations whose final states a filter remembers. */
const MAX_REMEMBERED = 10_000;

export interface LogSource {
  readonly logs: FunctionLogs;
  readonly tenant: string;
  /** Names of the functions whose logs are read: one, or all that the tenant can invoke at the time of the call. */
  readonly names: () => Promise<readonly string[]>;
  /** The states of invocations, in order; null for an invocation that the store no longer has. */
  readonly statuses: (invocations: readonly string[]) => Promise<readonly (InvocationStatus | null)[]>;
}

/**
 * Log lines that pass the filters: the last `limit` past lines in the range of the options, oldest first. There are fewer of them when they
 * reach `MAX_CHARACTERS`, or when the search reaches the bound on examined lines. With `follow`, live lines come next until the signal aborts.
 * Past lines of several functions are in the order of their time.
 *
 * @param memory counts the lines that wait for the caller, and the logs that the caller follows
 * @throws StoreError, and the errors of `memory`
 */
export async function* readLogs(
  source: LogSource,
  options: LogOptions,
  signal: AbortSignal,
  memory?: Memory,
): AsyncGenerator<LogEntry, void, undefined> {
  const heldMemory = new HeldMemory(memory);
  try {
    yield* readFiltered(source, options, signal, heldMemory);
  } finally {
    heldMemory.free();
  }
}

async function* readFiltered(
  source: LogSource,
  options: LogOptions,
  signal: AbortSignal,
  heldMemory: HeldMemory,
): AsyncGenerator<LogEntry, void, undefined> {
  const filter = new LogFilter(source, options);
  const names = await source.names();
  const logs = await openLogs(
    names,
    (name) => BackwardReader.open(source, name, options, names.length, heldMemory),
    signal,
  );
  const newest = new Map(logs.map((log) => [log.name, log.newest]));
  const pastEntries: LogEntry[] = [];
  let characters = 0;
  const [maxExamined, batchSize] =
    options.status === undefined ? [MAX_EXAMINED, 1] : [MAX_EXAMINED_WITH_STATES, STATE_BATCH];
  let sliceEndsAt = performance.now() + SLICE_MS;
  let examinedCount = 0;
  let hasMore = true;
  while (
    hasMore &&
    pastEntries.length < options.limit &&
    characters < MAX_CHARACTERS &&
    examinedCount < maxExamined &&
    !signal.aborted
  ) {
    const lines: LogLine[] = [];
    while (hasMore && lines.length < batchSize && examinedCount < maxExamined && !signal.aborted) {
      const line = await takeNewest(logs);
      if (line === null) hasMore = false;
      else lines.push(line);
      examinedCount += 1;
      // Lines of pages in memory come without a turn of the event loop, with many logs thousands in a row. Let other requests run between them.
      if (performance.now() > sliceEndsAt) {
        await nextTurn();
        sliceEndsAt = performance.now() + SLICE_MS;
      }
    }
    for (const entry of await filter.pass(lines)) {
      characters += entry.message.length;
      heldMemory.hold(bytesOfLine(entry.message.length));
      pastEntries.push(entry);
    }
  }
  // `splice` empties the lists, so that their lines can be freed while the caller follows.
  for (const log of logs.splice(0)) log.close();
  yield* pastEntries.splice(0).slice(0, options.limit).reverse();
  heldMemory.free();
  if (!options.follow) return;
  heldMemory.hold(FOLLOWED_BYTES * names.length);
  const memoryHooks = {
    read: (lines: readonly LogLine[]) => heldMemory.hold(totalBytes(lines)),
    passed: (line: LogLine) => heldMemory.give(totalBytes([line])),
  };
  for await (const line of source.logs.follow(source.tenant, source.names, newest, signal, memoryHooks))
    yield* await filter.pass([line]);
}

/** Opens the logs and reads their first pages, a few at once. */
async function openLogs(
  names: readonly string[],
  openLog: (name: string) => Promise<BackwardReader>,
  signal: AbortSignal,
): Promise<BackwardReader[]> {
  const logs: BackwardReader[] = [];
  for (let at = 0; at < names.length && !signal.aborted; at += OPENED_AT_ONCE) {
    // Wait for every read of the group, also after one has failed: a read that ended after `readLogs` would hold memory that nothing frees.
    const results = await Promise.allSettled(names.slice(at, at + OPENED_AT_ONCE).map(openLog));
    for (const each of results) {
      if (each.status === 'rejected') throw each.reason;
      logs.push(each.value);
    }
  }
  return logs;
}

/** Counts the memory that one call of `readLogs` holds, over all logs that it reads, so that it can be freed as a whole. */
class HeldMemory {
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

function bytesOfLine(characters: number): number {
  return CHARACTER_BYTES * characters + LINE_BYTES;
}

function totalBytes(lines: readonly LogLine[]): number {
  return lines.reduce((sum, { data }) => sum + bytesOfLine(data.length), 0);
}

/** Removes and returns the newest line among the heads of the logs; null when all logs are read to the end. */
async function takeNewest(logs: readonly BackwardReader[]): Promise<LogLine | null> {
  let newest: BackwardReader | undefined;
  for (const log of logs) {
    if (log.head !== null && (newest === undefined || log.isNewerThan(newest))) newest = log;
  }
  const line = newest?.head ?? null;
  await newest?.advance();
  return line;
}

/** Reads one log backward, from its newest line, page by page. */
class BackwardReader {
  readonly name: string;
  /** Cursor of the newest line in the range, or the beginning of the range when there is no line. `follow` starts after this cursor. */
  newest: string;
  /** The line that `takeNewest` takes next from this log; null at the end. */
  head: LogLine | null = null;
  readonly #source: LogSource;
  readonly #after: string;
  readonly #maxPageLines: number;
  readonly #heldMemory: HeldMemory;
  /** The lines of the page that are older than the head, oldest first. */
  #lines: LogLine[] = [];
  /** The two parts of the head's cursor, parsed once per head because `takeNewest` compares all heads for every line. */
  #headMs = 0;
  #headSequence = 0;
  /** Bytes held for the page. */
  #pageBytes = 0;
  /** Mean characters of the previous page's lines, by estimate. The initial value makes the first page a small one. */
  #meanCharacters = PAGE_CHARACTERS / SMALLEST_PAGE_LINES;
  #beforeCursor: string | undefined;
  #hasMore = true;

  private constructor(
    source: LogSource,
    name: string,
    after: string,
    beforeCursor: string | undefined,
    maxPageLines: number,
    heldMemory: HeldMemory,
  ) {
    this.#source = source;
    this.#heldMemory = heldMemory;
    this.name = name;
    this.newest = after;
    this.#after = after;
    this.#beforeCursor = beforeCursor;
    this.#maxPageLines = maxPageLines;
  }

  static async open(
    source: LogSource,
    name: string,
    options: LogOptions,
    logCount: number,
    heldMemory: HeldMemory,
  ): Promise<BackwardReader> {
    const { cursor, sinceMs = 0, untilMs } = options;
    const since = sinceMs > 0 ? `${sinceMs - 1}-${MAX_SEQUENCE}` : LOG_BEGINNING;
    const maxPageLines = Math.max(SMALLEST_PAGE_LINES, Math.floor(PAGE_LINES / Math.max(1, logCount)));
    const log = new BackwardReader(
      source,
      name,
      laterCursor(since, cursor === null ? LOG_BEGINNING : cursorFor(cursor, name)),
      untilMs === undefined ? undefined : `${untilMs}-0`,
      maxPageLines,
      heldMemory,
    );
    await log.advance();
    if (log.head !== null) log.newest = log.head.cursor;
    return log;
  }

  /** Makes the next older line the head. */
  async advance(): Promise<void> {
    if (this.#lines.length === 0 && this.#hasMore) await this.#readPage();
    this.head = this.#lines.pop() ?? null;
    const [ms = 0, sequence = 0] = this.head?.cursor.split('-').map(Number) ?? [];
    this.#headMs = ms;
    this.#headSequence = sequence;
  }

  /** True when this log's head is the newer one. With equal cursors, the head of the later function name counts as newer. */
  isNewerThan(other: BackwardReader): boolean {
    if (this.#headMs !== other.#headMs) return this.#headMs > other.#headMs;
    if (this.#headSequence !== other.#headSequence) return this.#headSequence > other.#headSequence;
    return this.name > other.name;
  }

  close(): void {
    this.#lines = [];
    this.#hasMore = false;
    this.#holdPage(0);
  }

  async #readPage(): Promise<void> {
    const { logs, tenant } = this.#source;
    const limit = Math.min(
      this.#maxPageLines,
      Math.max(SMALLEST_PAGE_LINES, Math.floor(PAGE_CHARACTERS / this.#meanCharacters)),
    );
    const lines = await logs.newest(tenant, this.name, { after: this.#after, before: this.#beforeCursor, limit });
    this.#holdPage(totalBytes(lines));
    this.#lines = lines.reverse();
    this.#beforeCursor = this.#lines[0]?.cursor ?? this.#beforeCursor;
    this.#hasMore = this.#lines.length === limit;
    this.#meanCharacters = Math.max(1, this.#pageBytes / CHARACTER_BYTES / Math.max(1, lines.length));
  }

  /** Holds the bytes of a new page in place of those of the last one. */
  #holdPage(bytes: number): void {
    this.#heldMemory.give(this.#pageBytes);
    // If `hold` throws, this log holds no bytes.
    this.#pageBytes = 0;
    this.#heldMemory.hold(bytes);
    this.#pageBytes = bytes;
  }
}

/** The largest sequence number of an entry in a Redis stream. */
const MAX_SEQUENCE = '18446744073709551615';

/**
 * Translates `cursor` (`<ms>-<sequence>@<function>`) to a position in the log of the function `name`. The lines after
 * that position are those newer than the cursor. Lines of several logs with equal ms and sequence are in order of
 * function name. In the log of a later name, the line at the cursor's position is thus newer than the cursor, and the
 * result is the position before that line.
 */
function cursorFor(cursor: string, name: string): string {
  const [position = LOG_BEGINNING, cursorFunction] = cursor.split('@');
  if (cursorFunction === undefined || name <= cursorFunction) return position;
  const [ms = '0', sequence = '0'] = position.split('-');
  if (sequence !== '0') return `${ms}-${BigInt(sequence) - 1n}`;
  return ms === '0' ? LOG_BEGINNING : `${BigInt(ms) - 1n}-${MAX_SEQUENCE}`;
}

/** The later one of two positions `<ms>-<sequence>`. */
function laterCursor(a: string, b: string): string {
  const [aMs = '0', aSeq = '0'] = a.split('-');
  const [bMs = '0', bSeq = '0'] = b.split('-');
  if (BigInt(aMs) !== BigInt(bMs)) return BigInt(aMs) > BigInt(bMs) ? a : b;
  return BigInt(aSeq) > BigInt(bSeq) ? a : b;
}

/** Selects the lines that pass the filters of the options. */
class LogFilter {
  readonly #source: LogSource;
  readonly #options: LogOptions;
  readonly #search: string | undefined;
  /** Final states by invocation; null for an invocation that the store no longer has. */
  readonly #endedStatuses = new Map<string, InvocationStatus | null>();

  constructor(source: LogSource, options: LogOptions) {
    this.#source = source;
    this.#options = options;
    this.#search = options.search?.toLowerCase();
  }

  /** The lines that pass, as entries, in the same order. */
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
    if (LEVELS.indexOf(entry.level) < LEVELS.indexOf(this.#options.level)) return false;
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

/** The frames of a thrown error, each in a line of its own. */
const framesText = (stack: unknown): string =>
  typeof stack === 'string' ? stack.replace(/^/gm, '\n    at ').replaceAll('\n\n', '\n') : '';

function toEntry(line: LogLine): LogEntry {
  const data = JSON.parse(line.data);
  const origin = {
    cursor: `${line.cursor}@${line.function}`,
    function: line.function,
    invocation: line.invocation,
    time: new Date(line.at).toISOString(),
  };
  if (line.event === 'error')
    return { ...origin, level: 'error', message: `${data.code}: ${data.message}${framesText(data.stack)}` };
  const level: LogLevel = LEVELS.find((each) => each === data.level) ?? 'info';
  return { ...origin, level, message: String(data.message) };
}
