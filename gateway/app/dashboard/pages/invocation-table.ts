import type { InvocationPage } from '../../resources/operations.ts';
import { duration, moment, number, shortVersion } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { badge, code, table } from '../html/parts.ts';

type Row = InvocationPage['invocations'][number];

/** Invocations, each linked to its own page. */
export function invocationTable(caption: string, rows: readonly Row[], now: number): Html {
  return table(
    caption,
    [
      { head: 'Invocation' },
      { head: 'Function' },
      { head: 'Status' },
      { head: 'Created' },
      { head: 'Time', numeric: true },
      { head: 'Tokens', numeric: true },
    ],
    rows.map((row) => [
      html`<a class="mono" href="/dashboard/invocations/${encodeURIComponent(row.id)}">${row.id}</a>`,
      html`${row.function} <small class="mono">${shortVersion(row.version)}</small>`,
      html`${badge(row.status)}${row.question === undefined ? NONE : html` <small>asks a person</small>`}${row.error === undefined || row.status !== 'failed' ? NONE : html` <small>${code(row.error.code)}</small>`}`,
      moment(row.createdAt, now),
      lasted(row, now),
      tokensOf(row),
    ]),
  );
}

/** The time from an invocation's start (from its creation, without a start) to its end or, in whole seconds, to `now`. */
export function lasted(row: Pick<Row, 'createdAt' | 'startedAt' | 'endedAt'>, now: number): string {
  const end = row.endedAt === undefined ? now : Date.parse(row.endedAt);
  const ms = Math.max(0, end - Date.parse(row.startedAt ?? row.createdAt));
  return duration(row.endedAt === undefined ? Math.floor(ms / 1000) * 1000 : ms);
}

function tokensOf({ usage }: Row): string {
  const { inputTokens = 0, outputTokens = 0 } = (usage ?? {}) as Readonly<Record<string, unknown>>;
  const sum = Number(inputTokens) + Number(outputTokens);
  return usage === undefined || Number.isNaN(sum) ? '–' : number(sum);
}
