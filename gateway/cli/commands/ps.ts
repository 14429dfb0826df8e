import { setTimeout as sleep } from 'node:timers/promises';
import { type InvocationState, type InvocationStatus, STATUSES } from '../../app/control.ts';
import { type InvocationPage, MAX_PAGE } from '../../app/resources/operations.ts';
import type { PieClient } from '../../client/client.ts';
import { defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, duration, number } from '../format.ts';
import { showHosts } from '../gpu-hosts.ts';
import type { Terminal } from '../terminal.ts';
import { wholeNumber } from '../whole-number.ts';

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
