import type { MinuteRow } from '../../resources/quotas.ts';
import { columns, lines } from '../html/chart.ts';
import { compact, duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { bar, code, empty, table, tile, tiles } from '../html/parts.ts';

export const MINUTES = 60;
const MINUTE_MS = 60_000;

/** One entry for each minute of the last hour, oldest first. It is null for a minute without activity. */
function byMinute(rows: readonly MinuteRow[], now: number): readonly (MinuteRow | null)[] {
  const rowByMinute = new Map(rows.map((row) => [Math.floor(Date.parse(row.at) / MINUTE_MS), row]));
  const last = Math.floor(now / MINUTE_MS);
  return Array.from({ length: MINUTES }, (_, index) => rowByMinute.get(last - MINUTES + 1 + index) ?? null);
}

/** Sums counts by cause over all rows, the most frequent cause first. */
export function causes(
  rows: readonly MinuteRow[],
  kind: 'failures' | 'rejections',
): readonly (readonly [string, number])[] {
  const sums = new Map<string, number>();
  for (const row of rows)
    for (const [cause, count] of Object.entries(row[kind])) sums.set(cause, (sums.get(cause) ?? 0) + count);
  return [...sums].sort(([causeA, countA], [causeB, countB]) => countB - countA || (causeA < causeB ? -1 : 1));
}

/** Tiles for the state now (`running`, `waiting`), the sums over the last hour, and the time to the first token in the latest minute that has one. */
export function hourTiles(rows: readonly MinuteRow[], running: Html, waiting: Html): Html {
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

export function firstTokenChart(rows: readonly MinuteRow[], now: number): Html {
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

export function tokensChart(rows: readonly MinuteRow[], now: number): Html {
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
export function minuteTable(rows: readonly MinuteRow[]): Html {
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
export function causeTable(rows: readonly MinuteRow[], kind: 'failures' | 'rejections'): Html {
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
