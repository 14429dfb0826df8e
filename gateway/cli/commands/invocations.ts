import { setTimeout as sleep } from 'node:timers/promises';
import { LEVELS, MAX_PAGE } from '../../app/bounds.ts';
import {
  type InvocationPage,
  type InvocationState,
  type InvocationStatus,
  type LogEntry,
  STATUSES,
} from '../../app/control.ts';
import { durationMs, timeMs } from '../../app/http/request-options.ts';
import { EVENT_ID } from '../../app/invocations/event-id.ts';
import type { PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, counted, duration, number, wholeNumber } from '../format.ts';
import { confirm, type Terminal } from '../terminal.ts';

import { follow } from './invoke.ts';
import { showHosts } from './machines.ts';

const id = { name: 'invocation', help: 'id of the invocation', required: true } as const;
/** Concurrent cancel requests; the others wait. */
const MAX_CONCURRENT_CANCELS = 16;
const ALL = Number.POSITIVE_INFINITY;

export const attach = defineCommand({
  name: 'attach',
  summary: 'Replay the events of an invocation and follow it',
  description:
    'Replays the events of an invocation and follows it until it ends, even if another client started it. Ctrl-C leaves the invocation running.',
  arguments: [id],
  options: [
    { flags: '--after <event>', help: 'only events after the one with this id or number', parse: eventIdOf },
    { flags: '--logs', help: 'also show the log lines of the function' },
  ],
  examples: [{ line: 'pie attach inv_4f1c', does: 'replays it from the beginning' }],
  async run({ args: [id], options, terminal, signal, connect }) {
    const { client } = await connect();
    const stream = client.events(id, { signal, lastEventId: options.after ?? '0' });
    return follow(stream, { terminal, logs: options.logs, lines: false });
  },
});

export const status = defineCommand({
  name: 'status',
  summary: 'Show the state of an invocation',
  arguments: [id],
  examples: [
    { line: 'pie status inv_4f1c', does: 'shows whether it is queued or running, or how it ended and what it used' },
  ],
  async run({ args: [id], terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.invocation(id, { signal });
    terminal.value(state);
    terminal.table(HEADING, [cells(state)], '');
    for (const line of details(state)) terminal.print(line);
    if (state.output !== undefined) terminal.print(JSON.stringify(state.output, null, 2));
    return EXIT.ok;
  },
});

function details({
  status,
  parent,
  schedule,
  question,
  notBefore,
  createdAt,
  startedAt,
  endedAt,
  attempts,
  error,
  usage,
  webhook,
}: InvocationState): string[] {
  const lines: string[] = [];
  if (parent !== undefined) lines.push(`child of ${parent}`);
  if (question !== undefined)
    lines.push(
      `asks (question ${question.number}, until ${question.until}): ${question.text}`,
      JSON.stringify(question.schema),
    );
  if (notBefore !== undefined) lines.push(`waits for the delay of its debounce key until ${notBefore}`);
  if (schedule !== undefined) lines.push(`made by the schedule ${schedule}`);
  if (startedAt !== undefined) {
    const waited = duration(Date.parse(startedAt) - Date.parse(createdAt));
    const ran = duration((endedAt === undefined ? Date.now() : Date.parse(endedAt)) - Date.parse(startedAt));
    const stateText =
      status === 'waiting' ? 'waits for an answer now' : `${endedAt === undefined ? 'runs for' : 'ran'} ${ran}`;
    lines.push(`began ${waited} after its submission, ${stateText}`);
    if (attempts > 1) lines.push(`${attempts} attempts: the times are those of the last, the usage is the sum of all`);
  }
  const usageTexts = Object.entries(usage ?? {}).flatMap(([name, amount]) =>
    typeof amount === 'number' && amount > 0 ? [`${name} ${number(amount)}`] : [],
  );
  if (usageTexts.length > 0) lines.push(`used ${usageTexts.join(', ')}`);
  if (webhook !== undefined) {
    const last = webhook.lastError ?? (webhook.lastStatus === null ? null : `status ${webhook.lastStatus}`);
    const next = webhook.nextAt === null ? null : `next at ${webhook.nextAt}`;
    const facts = [webhook.status, counted(webhook.attempts, 'attempt'), last, next].filter((fact) => fact !== null);
    lines.push(`webhook ${webhook.url}: ${facts.join(', ')}`);
  }
  if (error !== undefined) lines.push(`${error.code}: ${error.message}`);
  return lines;
}

export const cancel = defineCommand({
  name: 'cancel',
  summary: 'Cancel invocations',
  description:
    'Cancels the named invocations, or all waiting and running ones of a function or the tenant. Asks before it cancels, unless ids are given.',
  arguments: [{ name: 'invocation', help: 'ids of invocations', required: false, rest: true }],
  options: [
    { flags: '--function <name>', help: 'all waiting and running invocations of this function' },
    { flags: '--all', help: 'all waiting and running invocations of the tenant' },
    { flags: '-y, --yes', help: 'do not ask' },
  ],
  examples: [
    { line: 'pie cancel inv_4f1c', does: 'cancels it and releases everything that it holds' },
    { line: 'pie cancel --function text-completion', does: 'asks, then cancels all invocations of the function' },
  ],
  async run(call) {
    const { args, options, terminal, signal } = call;
    const isSelection = options.all || options.function !== undefined;
    const hasIds = args.length > 0;
    if (isSelection === hasIds)
      throw new Failure(isSelection ? 'Ids cannot be combined with --function or --all.' : 'No invocation was named.', {
        advice: '`pie ps` lists waiting and running invocations.',
      });
    const { client } = await call.connect();
    const ids = isSelection ? await confirmedIds(client, options.function, options.yes, signal) : [...new Set(args)];
    if (ids.length === 0) {
      terminal.note('Nothing waits or runs.');
      return EXIT.ok;
    }
    let failure: unknown;
    const remainingIds = [...ids].reverse();
    const work = async () => {
      for (let next = remainingIds.pop(); next !== undefined; next = remainingIds.pop()) {
        try {
          const state = await client.cancel(next, { signal });
          terminal.value(state);
          terminal.print(`${state.id}  ${endedBefore(state) ? `had ended before: ${state.status}` : 'cancelled'}`);
        } catch (error) {
          if (!(error instanceof PieError) || ids.length === 1) throw error;
          terminal.note(`${next}  ${error.message}`);
          failure ??= error;
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(MAX_CONCURRENT_CANCELS, ids.length) }, work));
    if (failure !== undefined) throw failure;
    return EXIT.ok;
  },
});

async function confirmedIds(
  client: PieClient,
  name: string | undefined,
  isConfirmed: boolean,
  signal: AbortSignal,
): Promise<string[]> {
  const openInvocations = await listInvocations(client, { function: name, limit: ALL }, signal);
  if (openInvocations.length > 0) {
    const whose = name === undefined ? '' : ` of ${name}`;
    await confirm(`Cancel ${counted(openInvocations.length, 'invocation')}${whose}?`, isConfirmed, signal);
  }
  return openInvocations.map((each) => each.id);
}

function endedBefore({ endedAt, status }: InvocationState): boolean {
  return endedAt !== undefined && status !== 'cancelled';
}

function eventIdOf(value: string): string {
  if (EVENT_ID.test(value)) return value;
  throw new Failure('It must be an event id, `<epoch>-<number>`, or an event number.');
}

type ListedInvocation = InvocationPage['invocations'][number];

const OPEN_STATUSES: readonly InvocationStatus[] = ['queued', 'running', 'waiting'];
const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 10_000;
const REFRESH_MS = 1000;
/** Moves a terminal's cursor to the top left, then clears the screen. */
const CLEAR_SCREEN = '\x1b[H\x1b[2J';

const OPTIONS = [
  { flags: '-a, --all', help: 'also list ended invocations' },
  { flags: '--function <name>', help: 'only this function' },
  {
    flags: '--status <states>',
    help: `only these states, separated by commas: ${STATUSES.join(', ')}`,
    parse: parseStatuses,
  },
  { flags: '--tenant <tenant>', help: 'another tenant (operators)' },
  {
    flags: '-l, --limit <number>',
    help: `most invocations to list (default: ${DEFAULT_LIMIT})`,
    parse: wholeNumber(1, MAX_LIMIT),
  },
  { flags: '--hosts', help: 'list the GPU hosts instead (operators)' },
  { flags: '-w, --watch', help: 'keep the list up to date; in a pipe, print a line for each change' },
] as const;

export const ps = defineCommand({
  name: 'ps',
  summary: 'List queued, running and waiting invocations, or all',
  description:
    'Shows waiting and running invocations, newest first; those in the state `waiting` wait for the answer of a person (`pie answer`). TOKENS counts embedded and sampled tokens, GPU and CPU the time used so far. AGE is the time since the submission, WAITED the time until the (last) start.',
  options: OPTIONS,
  examples: [
    { line: 'pie ps', does: 'lists invocations that wait or run now' },
    { line: 'pie ps --all --function text-completion --limit 20', does: 'lists the last 20 invocations of a function' },
    { line: 'pie ps --status failed --json', does: 'prints failed invocations, one JSON object a line' },
    { line: 'pie ps --watch', does: 'updates the list like top' },
    { line: 'pie ps --hosts', does: 'shows models, memory and load of each device' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    if (options.hosts && options.watch)
      throw new Failure('--hosts and --watch cannot be combined.', { advice: 'Use `watch pie ps --hosts`.' });
    const { client } = await call.connect();
    if (options.hosts) {
      showHosts(terminal, await client.operations.load({ signal }));
      return EXIT.ok;
    }
    if (!options.watch) {
      show(terminal, await listInvocations(client, options, signal));
      return EXIT.ok;
    }
    const shownStatuses = new Map<string, string>();
    while (!signal.aborted) {
      // Ctrl-C is the normal end of watching.
      const rows = await listInvocations(client, options, signal).catch((error) =>
        signal.aborted ? null : Promise.reject(error),
      );
      if (rows === null) break;
      if (terminal.redraws) {
        await terminal.write(CLEAR_SCREEN);
        table(terminal, rows, 'Nothing waits or runs.');
      } else {
        // Print nothing for an invocation that left the list: it has ended, or newer ones pushed it out.
        const changedRows = rows.filter((row) => shownStatuses.get(row.id) !== row.status).reverse();
        shownStatuses.clear();
        for (const row of rows) shownStatuses.set(row.id, row.status);
        for (const row of changedRows) {
          terminal.value(row);
          terminal.print(cells(row).join('  '));
        }
      }
      await sleep(REFRESH_MS, undefined, { signal }).catch(() => undefined);
    }
    return EXIT.ok;
  },
});

/** Invocations to list: by default, waiting and running ones. */
type Selection = Partial<Pick<OptionValues<typeof OPTIONS>, 'all' | 'function' | 'status' | 'tenant' | 'limit'>>;

/** Fetches as many pages as the limit needs. */
export async function listInvocations(
  client: PieClient,
  { function: name, status, all, tenant, limit = DEFAULT_LIMIT }: Selection,
  signal: AbortSignal,
): Promise<ListedInvocation[]> {
  const rows: ListedInvocation[] = [];
  for (let cursor: string | undefined; rows.length < limit; ) {
    const page = await client.operations.invocations({
      signal,
      status: status ?? (all ? undefined : OPEN_STATUSES),
      function: name,
      tenant,
      limit: Math.min(limit - rows.length, MAX_PAGE),
      cursor,
    });
    rows.push(...page.invocations);
    if (page.cursor === null) break;
    cursor = page.cursor;
  }
  return rows;
}

export const HEADING = ['ID', 'FUNCTION', 'STATUS', 'AGE', 'WAITED', 'TOKENS', 'GPU', 'CPU'];

function show(terminal: Terminal, rows: readonly ListedInvocation[]): void {
  for (const row of rows) terminal.value(row);
  table(terminal, rows, 'There are none. `pie ps --all` shows ended ones too.');
}

/** Adds a column for the GPU host if the gateway reports one. It does so for operators, if there are several hosts. */
function table(terminal: Terminal, rows: readonly ListedInvocation[], emptyText: string): void {
  if (rows.every(({ gpuHost }) => gpuHost === undefined)) terminal.table(HEADING, rows.map(cells), emptyText);
  else
    terminal.table(
      [...HEADING, 'GPU HOST'],
      rows.map((row) => [...cells(row), row.gpuHost ?? '-']),
      emptyText,
    );
}

/** An invocation as a row below {@link HEADING}. */
export function cells(row: InvocationState): string[] {
  const waitEndedAt = row.startedAt ?? row.endedAt;
  const waitedMs = (waitEndedAt === undefined ? Date.now() : Date.parse(waitEndedAt)) - Date.parse(row.createdAt);
  const time = (name: string) => {
    const ms = numberOf(row, name);
    return ms === null ? '-' : duration(ms);
  };
  const tokens = [numberOf(row, 'inputTokens'), numberOf(row, 'outputTokens')];
  return [
    row.id,
    `${row.function}@${row.version}`,
    stateOf(row),
    ago(row.createdAt),
    duration(Math.max(0, waitedMs)),
    tokens.every((count) => count === null) ? '-' : number((tokens[0] ?? 0) + (tokens[1] ?? 0)),
    time('gpuMs'),
    time('cpuMs'),
  ];
}

/** The state in words, such as `running, attempt 2`, `queued for 30 s more` or `failed (trap)`. */
function stateOf({ status, error, attempts, notBefore }: InvocationState): string {
  if (status === 'queued' && notBefore !== undefined)
    return `queued for ${duration(Math.max(0, Date.parse(notBefore) - Date.now()))} more`;
  const state = error === undefined || status === 'cancelled' ? status : `${status} (${error.code})`;
  return attempts > 1 ? `${state}, attempt ${attempts}` : state;
}

function numberOf({ usage }: InvocationState, name: string): number | null {
  const value = usage?.[name];
  return typeof value === 'number' ? value : null;
}

function parseStatuses(value: string): readonly InvocationStatus[] {
  return value.split(',').map((word) => {
    const status = STATUSES.find((each) => each === word.trim());
    if (status !== undefined) return status;
    throw new Failure(`"${word}" is not one of ${STATUSES.join(', ')}.`);
  });
}

export const logs = defineCommand({
  name: 'logs',
  summary: 'Show the log lines of functions',
  description:
    'Shows the log lines of a function, including its console and the errors of failed invocations; without a name, those of all functions. About 2,000 lines of each function are kept for a week, unless pie.toml sets other limits.',
  arguments: [{ name: 'function', help: 'name of the function (default: all functions)', required: false }],
  options: [
    { flags: '-f, --follow', help: 'wait for new lines and show them' },
    {
      flags: '--since <time>',
      help: 'only lines after this time: 10m, 2h or 1d before now, or ISO 8601',
      parse: checkedTime,
    },
    { flags: '--until <time>', help: 'only lines before this time, in the same formats', parse: checkedTime },
    { flags: '--status <state>', help: 'only invocations that are in this state now', choices: STATUSES },
    { flags: '--search <text>', help: 'only lines with this text; ignores case' },
    { flags: '--level <level>', help: 'only this level and more severe ones', choices: LEVELS },
    { flags: '--invocation <id>', help: 'only this invocation' },
    { flags: '-l, --limit <lines>', help: 'most past lines to show (default: 200)', parse: lineCount },
  ],
  examples: [
    { line: 'pie logs text-completion --limit 50', does: 'shows the newest 50 lines' },
    {
      line: 'pie logs text-completion --since 10m --status failed',
      does: 'shows lines of invocations that failed, from the last ten minutes',
    },
    { line: 'pie logs --follow --level warn', does: 'follows the warnings and errors of all functions' },
  ],
  async run({ args: [name = null], options, terminal, signal, connect }) {
    const { client } = await connect();
    const { follow, ...filters } = options;
    const query = { ...filters, signal };
    if (follow && query.until !== undefined)
      throw new Failure('--follow and --until cannot be combined: live lines have no end.', {
        advice: 'Leave one of them out.',
      });
    const show = (entry: LogEntry) => {
      terminal.value(entry);
      const where = name === null ? `${entry.function}  ${entry.invocation}` : entry.invocation;
      terminal.print(`${entry.time}  ${entry.level.padEnd(5)}  ${where}  ${entry.message}`);
    };
    if (!follow) {
      const entries = await client.logs(name, query);
      for (const entry of entries) show(entry);
      if (entries.length === 0) terminal.note('There is no such line.');
      return EXIT.ok;
    }
    try {
      for await (const entry of client.followLogs(name, query)) show(entry);
    } catch (error) {
      // Ctrl-C is the normal end of following.
      if (!signal.aborted) throw error;
    }
    return EXIT.ok;
  },
});

function lineCount(value: string): number {
  const count = Number(value);
  if (Number.isInteger(count) && count > 0) return count;
  throw new Failure('It must be a whole number above 0.');
}

/** Checks the text of a time and returns it unchanged: the gateway subtracts durations from its own clock. */
function checkedTime(value: string): string {
  const isDuration = /[a-z]$/.test(value);
  const ms = isDuration ? durationMs(value) : timeMs(value, 0);
  if (ms !== null) return value;
  throw new Failure('It must be a time before now (30s, 10m, 2h, 1d), or ISO 8601 (2026-11-20T05:12:00Z).');
}
