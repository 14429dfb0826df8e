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
const MAX_LOOKED_AT = 100_000;
const MAX_LOOKED_UP = 20_000;
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
  const held = new HeldLines(memory);
  try {
    yield* readHeld(source, options, signal, held);
  } finally {
    held.free();
  }
}

async function* readHeld(
  source: LogSource,
  options: LogOptions,
  signal: AbortSignal,
  held: HeldLines,
): AsyncGenerator<LogEntry, void, undefined> {
  const filter = new LogFilter(source, options);
  const names = await source.names();
  const logs = await openLogs(names, (name) => Backwards.open(source, name, options, names.length, held), signal);
  const newest = new Map(logs.map((log) => [log.name, log.newest]));
  const past: LogEntry[] = [];
  let characters = 0;
  const [most, batch] = options.status === undefined ? [MAX_LOOKED_AT, 1] : [MAX_LOOKED_UP, BATCH];
  let sliceEndsAt = performance.now() + SLICE_MS;
  for (
    let looked = 0, more = true;
    more && past.length < options.limit && characters < MAX_CHARACTERS && looked < most && !signal.aborted;
  ) {
    const lines: LogLine[] = [];
    while (more && lines.length < batch && looked < most && !signal.aborted) {
      const line = await next(logs);
      if (line === null) more = false;
      else lines.push(line);
      looked += 1;
      // The pages of many logs hold thousands of lines.
      if (performance.now() > sliceEndsAt) {
        await nextTurn();
        sliceEndsAt = performance.now() + SLICE_MS;
      }
    }
    for (const entry of await filter.pass(lines)) {
      characters += entry.message.length;
      held.hold(sizeOf(entry.message.length));
      past.push(entry);
    }
  }
  for (const log of logs.splice(0)) log.close();
  yield* past.splice(0).slice(0, options.limit).reverse();
  held.free();
  if (!options.follow) return;
  held.hold(FOLLOWED_BYTES * names.length);
  const counted = {
    read: (lines: readonly LogLine[]) => held.hold(total(lines)),
    passed: (line: LogLine) => held.give(total([line])),
  };
  for await (const line of source.logs.follow(source.tenant, source.names, newest, signal, counted))
    yield* await filter.pass([line]);
}

/** Opens logs, a few at once. */
async function openLogs(
  names: readonly string[],
  open: (name: string) => Promise<Backwards>,
  signal: AbortSignal,
): Promise<Backwards[]> {
  const logs: Backwards[] = [];
  for (let at = 0; at < names.length && !signal.aborted; at += OPENED_AT_ONCE) {
    // Wait for every read of the group, also after one has failed: a read that ends later would take memory that the stream no longer frees.
    const opened = await Promise.allSettled(names.slice(at, at + OPENED_AT_ONCE).map(open));
    for (const each of opened) {
      if (each.status === 'rejected') throw each.reason;
      logs.push(each.value);
    }
  }
  return logs;
}

/** Memory of one reader's lines. */
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

function total(lines: readonly LogLine[]): number {
  return lines.reduce((sum, { data }) => sum + sizeOf(data.length), 0);
}

/** Removes and returns the newest line of all logs. */
async function next(logs: readonly Backwards[]): Promise<LogLine | null> {
  let newest: Backwards | undefined;
  for (const log of logs) {
    if (log.head !== null && (newest === undefined || log.isNewerThan(newest))) newest = log;
  }
  const line = newest?.head ?? null;
  await newest?.advance();
  return line;
}

/** One log, read from its end. */
class Backwards {
  readonly name: string;
  /** Cursor after which following starts. */
  newest: string;
  head: LogLine | null = null;
  readonly #source: LogSource;
  readonly #after: string;
  readonly #page: number;
  readonly #held: HeldLines;
  #lines: LogLine[] = [];
  /** The parts of the head's cursor: each line is compared with the heads of all logs. */
  #headMs = 0;
  #headSequence = 0;
  /** Bytes held of the page. */
  #bytes = 0;
  /** Mean characters of the lines of the last page. */
  #mean = PAGE_CHARACTERS / SMALLEST_PAGE;
  #before: string | undefined;
  #more = true;

  private constructor(
    source: LogSource,
    name: string,
    after: string,
    before: string | undefined,
    page: number,
    held: HeldLines,
  ) {
    this.#source = source;
    this.#held = held;
    this.name = name;
    this.newest = after;
    this.#after = after;
    this.#before = before;
    this.#page = page;
  }

  static async open(
    source: LogSource,
    name: string,
    options: LogOptions,
    beside: number,
    held: HeldLines,
  ): Promise<Backwards> {
    const { cursor, sinceMs = 0, untilMs } = options;
    const since = sinceMs > 0 ? `${sinceMs - 1}-${MAX_SEQUENCE}` : LOG_BEGINNING;
    const page = Math.max(SMALLEST_PAGE, Math.floor(PAGE / Math.max(1, beside)));
    const log = new Backwards(
      source,
      name,
      later(since, cursor === null ? LOG_BEGINNING : cursorFor(cursor, name)),
      untilMs === undefined ? undefined : `${untilMs}-0`,
      page,
      held,
    );
    await log.advance();
    if (log.head !== null) log.newest = log.head.cursor;
    return log;
  }

  async advance(): Promise<void> {
    if (this.#lines.length === 0 && this.#more) await this.#readPage();
    this.head = this.#lines.pop() ?? null;
    const [ms = 0, sequence = 0] = this.head?.cursor.split('-').map(Number) ?? [];
    this.#headMs = ms;
    this.#headSequence = sequence;
  }

  /** Orders the heads of two logs by cursor, then by function. */
  isNewerThan(other: Backwards): boolean {
    if (this.#headMs !== other.#headMs) return this.#headMs > other.#headMs;
    if (this.#headSequence !== other.#headSequence) return this.#headSequence > other.#headSequence;
    return this.name > other.name;
  }

  close(): void {
    this.#lines = [];
    this.#more = false;
    this.#keep(0);
  }

  async #readPage(): Promise<void> {
    const { logs, tenant } = this.#source;
    const limit = Math.min(this.#page, Math.max(SMALLEST_PAGE, Math.floor(PAGE_CHARACTERS / this.#mean)));
    const lines = await logs.newest(tenant, this.name, { after: this.#after, before: this.#before, limit });
    this.#keep(total(lines));
    this.#lines = lines.reverse();
    this.#before = this.#lines[0]?.cursor ?? this.#before;
    this.#more = this.#lines.length === limit;
    this.#mean = Math.max(1, this.#bytes / CHARACTER_BYTES / Math.max(1, lines.length));
  }

  #keep(bytes: number): void {
    this.#held.give(this.#bytes);
    this.#bytes = 0;
    this.#held.hold(bytes);
    this.#bytes = bytes;
  }
}

const MAX_SEQUENCE = '18446744073709551615';

/** The place of the cursor `<ms>-<number>@<function>` in one log. Lines with equal ids are in order of name: a later name includes the id. */
function cursorFor(cursor: string, name: string): string {
  const [place = LOG_BEGINNING, of] = cursor.split('@');
  if (of === undefined || name <= of) return place;
  const [ms = '0', sequence = '0'] = place.split('-');
  if (sequence !== '0') return `${ms}-${BigInt(sequence) - 1n}`;
  return ms === '0' ? LOG_BEGINNING : `${BigInt(ms) - 1n}-${MAX_SEQUENCE}`;
}

function later(a: string, b: string): string {
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
  readonly #ended = new Map<string, InvocationStatus | null>();

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
    const asked: string[] = [];
    for (const invocation of invocations) {
      const known = this.#ended.get(invocation);
      if (known === undefined) asked.push(invocation);
      else states.set(invocation, known);
    }
    if (asked.length === 0) return states;
    if (this.#ended.size + asked.length > MAX_REMEMBERED) this.#ended.clear();
    const found = await this.#source.statuses(asked);
    for (const [i, invocation] of asked.entries()) {
      const status = found[i] ?? null;
      states.set(invocation, status);
      if (status === null || hasEnded(status)) this.#ended.set(invocation, status);
    }
    return states;
  }
}

function toEntry(line: LogLine): LogEntry {
  const data = JSON.parse(line.data);
  const place = {
    cursor: `${line.cursor}@${line.function}`,
    function: line.function,
    invocation: line.invocation,
    time: new Date(line.at).toISOString(),
  };
  if (line.event === 'error') return { ...place, level: 'error', message: `${data.code}: ${data.message}` };
  const level: LogLevel = Object.hasOwn(SEVERITY, data.level) ? data.level : 'info';
  return { ...place, level, message: String(data.message) };
}
