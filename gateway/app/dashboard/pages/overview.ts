import type { InvocationPage, InvocationStatus, MinuteRow } from '../../control.ts';
import { columns, lines } from '../html/chart.ts';
import {
  bar,
  code,
  compact,
  duration,
  empty,
  type Html,
  html,
  moment,
  NONE,
  number,
  table,
  tile,
  tiles,
} from '../html/parts.ts';
import { once, type Page, tenantOf, type Visit, withTenant } from '../page.ts';
import { invocationTable } from './invocations.ts';
import { quotaBars } from './usage.ts';

/** Maximum invocations of each status that the page lists. */
const SHOWN = 8;
/** Maximum characters of a question in the list of questions. */
const MAX_QUESTION = 160;

/** A tenant's state: use of its limits, running invocations, latency, and failures. */
export function overviewPage(visit: Visit): Page {
  const { control, call, now } = visit;
  const tenant = tenantOf(visit);
  const minutes = once(() => control.quotas.minutes(call, tenant, MINUTES));
  const quotas = once(() => control.quotas.status(call, tenant));
  const active = once(async () => {
    // Ask for one more than the page shows, so that `count` can tell that there are more.
    const ask = (status: InvocationStatus) =>
      control.operations.invocations(call, { tenant, status, limit: SHOWN + 1 });
    const [running, queued, asking] = await Promise.all([ask('running'), ask('queued'), ask('waiting')]);
    return { running: running.invocations, queued: queued.invocations, asking: asking.invocations };
  });
  /** The number of invocations with a status: exact when a quota counts them, otherwise `8+` for more than the page lists. */
  const count = async (status: 'running' | 'queued'): Promise<Html> => {
    const name = status === 'running' ? 'concurrent-invocations' : 'waiting-invocations';
    const limit = (await quotas()).find(({ quota, function: fn }) => quota === name && fn === null);
    if (limit !== undefined) return html`${limit.used}`;
    const list = (await active())[status];
    return html`${list.length > SHOWN ? `${SHOWN}+` : list.length}`;
  };

  return {
    title: 'Overview',
    place: 'overview',
    head: html`<div class="head"><div class="titles"><h1>Overview</h1><p>Tenant ${tenant}, the last hour</p></div></div>`,
    live: true,
    fragments: [
      {
        id: 'now',
        look: 'wide bare',
        render: async () =>
          html`<h2 class="unseen">Now</h2>${hourTiles(await minutes(), await count('running'), await count('queued'))}`,
      },
      { id: 'questions', look: 'wide card', render: async () => questionList(visit, tenant, (await active()).asking) },
      {
        id: 'limits',
        look: 'wide card',
        render: async () =>
          html`<div class="card-head"><h2>Usage against limits</h2><a href="${withTenant('/dashboard/usage', visit, tenant)}">Usage in detail</a></div>${quotaBars(await quotas(), now)}`,
      },
      {
        id: 'active',
        look: 'wide card',
        render: async () => {
          const { running, queued } = await active();
          const rows = [...running.slice(0, SHOWN), ...queued.slice(0, SHOWN)];
          return html`<div class="card-head"><h2>Running and waiting</h2><a href="${withTenant('/dashboard/invocations', visit, tenant)}">All invocations</a></div>${
            rows.length === 0
              ? empty('Nothing runs.', html`Start something with <code>pie invoke</code> and watch it here.`)
              : invocationTable('Running and waiting invocations', rows, now)
          }`;
        },
      },
      {
        id: 'first-token',
        look: 'card',
        render: async () => html`<h2>Time to first token</h2>${firstTokenChart(await minutes(), now)}`,
      },
      {
        id: 'tokens',
        look: 'card',
        render: async () => html`<h2>Output tokens</h2>${tokensChart(await minutes(), now)}`,
      },
      {
        id: 'failures',
        look: 'card',
        render: async () => html`<h2>Failures by cause</h2>${causeTable(await minutes(), 'failures')}`,
      },
      {
        id: 'rejections',
        look: 'card',
        render: async () => html`<h2>Rejections by cause</h2>${causeTable(await minutes(), 'rejections')}`,
      },
      {
        id: 'minutes',
        look: 'wide bare',
        render: async () => minuteTable(await minutes()),
      },
    ],
  };
}

/** The invocations that wait for a person, newest first. */
function questionList(visit: Visit, tenant: string, asking: InvocationPage['invocations']): Html {
  if (asking.length === 0) return NONE;
  const rows = asking.slice(0, SHOWN).map(({ id, function: name, question: { text = '', until = '' } = {} }) => {
    const [line = ''] = text.split('\n', 1);
    return [
      html`<a class="mono" href="/dashboard/invocations/${encodeURIComponent(id)}#question">${id}</a>`,
      name,
      line.length > MAX_QUESTION ? `${line.slice(0, MAX_QUESTION)}…` : line,
      moment(until, visit.now),
    ];
  });
  const allWaitingAddress = withTenant('/dashboard/invocations', visit, tenant, { status: 'waiting' });
  return html`<div class="card-head"><h2>Waiting for a person</h2><a href="${allWaitingAddress}">All that wait</a></div>${table(
    'Invocations that wait for a person, newest first',
    [{ head: 'Invocation' }, { head: 'Function' }, { head: 'Question' }, { head: 'Until' }],
    rows,
  )}`;
}

const MINUTES = 60;
const MINUTE_MS = 60_000;

/** One entry for each minute of the last hour, oldest first. It is null for a minute without activity. */
function byMinute(rows: readonly MinuteRow[], now: number): readonly (MinuteRow | null)[] {
  const rowByMinute = new Map(rows.map((row) => [Math.floor(Date.parse(row.at) / MINUTE_MS), row]));
  const last = Math.floor(now / MINUTE_MS);
  return Array.from({ length: MINUTES }, (_, index) => rowByMinute.get(last - MINUTES + 1 + index) ?? null);
}

/** Sums counts by cause over all rows, the most frequent cause first. */
function causes(rows: readonly MinuteRow[], kind: 'failures' | 'rejections'): readonly (readonly [string, number])[] {
  const sums = new Map<string, number>();
  for (const row of rows)
    for (const [cause, count] of Object.entries(row[kind])) sums.set(cause, (sums.get(cause) ?? 0) + count);
  return [...sums].sort(([causeA, countA], [causeB, countB]) => countB - countA || (causeA < causeB ? -1 : 1));
}

/** Tiles for the state now (`running`, `waiting`), the sums over the last hour, and the time to the first token in the latest minute that has one. */
function hourTiles(rows: readonly MinuteRow[], running: Html, waiting: Html): Html {
  const sum = (member: 'invocations' | 'outputTokens') => rows.reduce((total, row) => total + row[member], 0);
  const latest = rows.findLast((row) => row.firstTokenMs !== null)?.firstTokenMs;
  return tiles(
    tile('Running', running),
    tile('Waiting', waiting),
    tile('Invocations', compact(sum('invocations')), 'in the last hour'),
    tile('Output tokens', compact(sum('outputTokens')), 'in the last hour'),
    tile(
      'Time to first token',
      latest ? duration(latest.p50) : '–',
      latest ? `p95 ${duration(latest.p95)}, latest minute` : 'none in the last hour',
    ),
  );
}

function firstTokenChart(rows: readonly MinuteRow[], now: number): Html {
  if (rows.every(({ firstTokenMs }) => firstTokenMs === null))
    return empty('No first token in the last hour.', 'It is measured from submission to the first message.');
  const minutes = byMinute(rows, now);
  return lines(
    [
      { name: 'p50', values: minutes.map((row) => row?.firstTokenMs?.p50 ?? null) },
      { name: 'p95', values: minutes.map((row) => row?.firstTokenMs?.p95 ?? null) },
    ],
    { label: 'Time to first token by minute', format: duration, from: '60 min ago', to: 'now' },
  );
}

function tokensChart(rows: readonly MinuteRow[], now: number): Html {
  if (rows.every(({ outputTokens }) => outputTokens === 0))
    return empty('No output tokens in the last hour.', html`Try <code>pie invoke text-completion</code>.`);
  const first = Math.floor(now / MINUTE_MS) - MINUTES + 1;
  return columns(
    { name: 'Output tokens', values: byMinute(rows, now).map((row) => row?.outputTokens ?? null) },
    Array.from({ length: MINUTES }, (_, index) => clockTime(new Date((first + index) * MINUTE_MS).toISOString())),
    {
      label: 'Output tokens by minute',
      format: (value) => `${compact(value)} a minute`,
      from: '60 min ago',
      to: 'now',
    },
  );
}

/** Hours and minutes of an ISO 8601 time: `10:30` of `2026-03-01T10:30:00Z`. */
function clockTime(iso: string): string {
  return iso.slice(11, 16);
}

/** The numbers behind the charts of tokens and first tokens, newest first. */
function minuteTable(rows: readonly MinuteRow[]): Html {
  if (rows.length === 0) return NONE;
  const cells = [...rows]
    .reverse()
    .map(({ at, invocations, outputTokens, firstTokenMs }) => [
      html`<time datetime="${at}">${clockTime(at)}</time>`,
      number(invocations),
      number(outputTokens),
      firstTokenMs === null ? '–' : duration(firstTokenMs.p50),
      firstTokenMs === null ? '–' : duration(firstTokenMs.p95),
    ]);
  return html`<details><summary>Numbers by minute</summary><div class="scroll" tabindex="0" role="region" aria-label="Numbers by minute">${table(
    'The last hour by minute, newest first',
    [
      { head: 'Minute' },
      { head: 'Invocations', numeric: true },
      { head: 'Output tokens', numeric: true },
      { head: 'First token p50', numeric: true },
      { head: 'First token p95', numeric: true },
    ],
    cells,
  )}</div></details>`;
}

/** Counts of failed invocations or refused requests by cause. */
function causeTable(rows: readonly MinuteRow[], kind: 'failures' | 'rejections'): Html {
  const list = causes(rows, kind);
  if (list.length === 0)
    return empty(
      kind === 'failures' ? 'No invocation failed in the last hour.' : 'No request was refused in the last hour.',
    );
  const highestCount = list[0]?.[1] ?? 1;
  return table(
    kind === 'failures' ? 'Failed invocations by cause' : 'Refused requests by cause',
    [{ head: 'Cause' }, { head: 'Share' }, { head: 'Count', numeric: true }],
    list.map(([cause, count]) => [
      code(cause),
      bar(count / highestCount, `${cause}: ${number(count)}`, true),
      number(count),
    ]),
    { narrow: true },
  );
}
