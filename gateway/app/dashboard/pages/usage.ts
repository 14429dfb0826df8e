import { z } from '@hono/zod-openapi';
import { quotaLabel } from '#scheduler/quotas/names.ts';
import { SPANS, type Span } from '../../bounds.ts';
import type { QuotaStatus, UsageRow } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { columns } from '../html/chart.ts';
import {
  bar,
  compact,
  duration,
  empty,
  type Html,
  html,
  NONE,
  number,
  quotaAmount,
  table,
  until,
} from '../html/parts.ts';
import { type Page, tenantOf, type Visit, withTenant } from '../page.ts';

const NAMES: Readonly<Record<Span, string>> = {
  hour: 'The last 24 hours',
  day: 'The last 31 days',
  month: 'The last 12 months',
};

const SPAN_HEADS: Readonly<Record<Span, string>> = { hour: 'Hour', day: 'Day', month: 'Month' };
/** Characters of an ISO 8601 time that name a span: `2026-03-01T10:00`, `2026-03-01`, `2026-03`. */
const NAME_LENGTHS: Readonly<Record<Span, number>> = { hour: 16, day: 10, month: 7 };

/** All limits of a tenant and its functions, and its usage over time. */
export function usagePage(visit: Visit): Page {
  const { control, call, now, url } = visit;
  const tenant = tenantOf(visit);
  const parsed = z.enum(SPANS).safeParse(url.searchParams.get('by') ?? 'day');
  if (!parsed.success)
    throw new GatewayError('invalid-input', 'Usage is shown by hour, day or month.', {
      hint: 'Choose one from the list of the page.',
    });
  const by = parsed.data;
  const perFunction = url.searchParams.get('per') === 'function';
  const choice = (span: Span) =>
    html`<option value="${span}"${span === by ? html` selected` : NONE}>${NAMES[span]}</option>`;

  return {
    title: 'Usage',
    place: 'usage',
    head: html`<div class="head"><div class="titles"><h1>Usage</h1><p>Tenant ${tenant}</p></div></div>`,
    live: true,
    fragments: [
      {
        id: 'limits',
        look: 'wide card',
        render: async () => html`<h2>Limits</h2>${quotaBars(await control.quotas.status(call, tenant), now)}`,
      },
      {
        id: 'choice',
        look: 'wide card',
        fixed: true,
        render: () => html`<h2 class="unseen">Choose</h2><form class="row" method="get" action="/dashboard/usage">
${tenant === call.principal.tenant ? NONE : html`<input type="hidden" name="tenant" value="${tenant}">`}
<div><label for="by">Time</label><select id="by" name="by">${SPANS.map(choice)}</select></div>
<div><label for="per">Rows</label><select id="per" name="per"><option value="all">All functions together</option><option value="function"${perFunction ? html` selected` : NONE}>One per function</option></select></div>
<button>Show</button></form>`,
      },
      {
        id: 'usage',
        look: 'wide card',
        render: async () => {
          const from = firstShown(by, now).toISOString();
          const rows = await control.quotas.usage(call, { tenant, from, by, perFunction });
          return html`<h2>${NAMES[by]}</h2>${
            rows.length === 0
              ? empty(
                  'Nothing was used.',
                  html`Look at the <a href="${withTenant('/dashboard/invocations', visit, tenant)}">invocations</a>.`,
                )
              : html`${usageCharts(rows, by, now)}${usageTable(rows, by, perFunction)}`
          }<p class="muted hint"><code>pie usage --csv</code> exports these numbers.</p>`;
        },
      },
    ],
  };
}

function usageTable(rows: readonly UsageRow[], by: Span, perFunction: boolean): Html {
  const span = (at: string) => html`<time datetime="${at}">${at.slice(0, NAME_LENGTHS[by]).replace('T', ' ')}</time>`;
  const newestFirst = [...rows].sort((a, b) => {
    if (a.at === b.at) return 0;
    return a.at < b.at ? 1 : -1;
  });
  return html`<div class="sideways" tabindex="0" role="region" aria-label="Usage by ${by}">${table(
    `Usage by ${by}, newest first`,
    [
      { head: SPAN_HEADS[by] },
      ...(perFunction ? [{ head: 'Function' }] : []),
      { head: 'Invocations', numeric: true },
      { head: 'Failed', numeric: true },
      { head: 'Input tokens', numeric: true },
      { head: 'Output tokens', numeric: true },
      { head: 'Cached tokens', numeric: true },
      { head: 'GPU time', numeric: true },
      { head: 'CPU time', numeric: true },
      { head: 'Page seconds', numeric: true },
    ],
    newestFirst.map((row) => [
      span(row.at),
      ...(perFunction ? [row.function ?? '–'] : []),
      number(row.invocations),
      number(row.failed),
      number(row.inputTokens),
      number(row.outputTokens),
      number(row.cachedTokens),
      duration(row.gpuMs),
      duration(row.cpuMs),
      number(row.pageSeconds),
    ]),
  )}</div>`;
}

/** A bar for the use of each limit, with the time of its reset. */
export function quotaBars(quotas: readonly QuotaStatus[], now: number): Html {
  if (quotas.length === 0)
    return empty('Nothing limits this tenant.', html`An operator sets limits with <code>pie quota set</code>.`);
  return html`<ul class="quota">${quotas.map((status) => quotaBar(status, now))}</ul>`;
}

function quotaBar({ quota, function: fn, limit, used, resetsAt, source, override }: QuotaStatus, now: number): Html {
  const label = fn === null ? quotaLabel(quota) : `${quotaLabel(quota)}, ${fn}`;
  const amount = `${quotaAmount(quota, used)} of ${quotaAmount(quota, limit)}`;
  const sourceText = { default: 'Default', tenant: 'Set for this tenant', override: 'Override' }[source];
  const overrideNote =
    override === undefined
      ? NONE
      : html`<small class="muted">By ${override.author}, ends ${until(override.expiresAt, now)}${override.reason === '' ? NONE : html`: ${override.reason}`}</small>`;
  return html`<li><div class="line"><strong>${label}</strong><span>${amount}</span></div>
${bar(limit === 0 ? 1 : used / limit, `${label}: ${amount}`)}
<div class="line"><small>${sourceText}</small><small>${resetsAt === null ? 'Held now' : html`Resets ${until(resetsAt, now)}`}</small></div>${overrideNote}</li>`;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** A span is an hour, a day or a month. For each kind: the number of spans in a chart, and the labels of the first and the last one. */
const AXES: Readonly<Record<Span, { readonly count: number; readonly from: string; readonly to: string }>> = {
  hour: { count: 24, from: '23 h ago', to: 'this hour' },
  day: { count: 31, from: '30 days ago', to: 'today' },
  month: { count: 12, from: '11 months ago', to: 'this month' },
};

/** Number of the span that a time belongs to, in UTC. Hours and days count from the Unix epoch, months from the year 0. */
function spanOf(at: number, by: Span): number {
  if (by === 'hour') return Math.floor(at / HOUR_MS);
  if (by === 'day') return Math.floor(at / DAY_MS);
  const date = new Date(at);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** The names of the shown spans, oldest first. */
export function spanNames(by: Span, now: number): readonly string[] {
  const { count } = AXES[by];
  const first = spanOf(now, by) - count + 1;
  return Array.from({ length: count }, (_, index) => spanName(by, first + index));
}

/** Start of the first shown span. */
function firstShown(by: Span, now: number): Date {
  return spanStart(by, spanOf(now, by) - AXES[by].count + 1);
}

function spanStart(by: Span, span: number): Date {
  if (by === 'hour') return new Date(span * HOUR_MS);
  return new Date(by === 'day' ? span * DAY_MS : Date.UTC(Math.floor(span / 12), span % 12));
}

function spanName(by: Span, span: number): string {
  const start = spanStart(by, span).toISOString();
  if (by === 'hour') return start.slice(0, 16).replace('T', ' ');
  // `2026-03-01` for a day, `2026-03` for a month.
  return start.slice(0, by === 'day' ? 10 : 7);
}

/** For each shown span, oldest first, the sum of a member over the rows of the span; 0 for a span without a row. */
export function bySpan(
  rows: readonly UsageRow[],
  by: Span,
  member: 'invocations' | 'failed' | 'outputTokens' | 'gpuMs',
  now: number,
): readonly number[] {
  const { count } = AXES[by];
  const first = spanOf(now, by) - count + 1;
  const sums = Array<number>(count).fill(0);
  for (const row of rows) {
    const index = spanOf(Date.parse(row.at), by) - first;
    if (index >= 0 && index < count) sums[index] = (sums[index] ?? 0) + row[member];
  }
  return sums;
}

/** Invocations, failures, tokens and device time over a day, a month or a year. */
export function usageCharts(rows: readonly UsageRow[], by: Span, now: number): Html {
  const { from, to } = AXES[by];
  const names = spanNames(by, now);
  const chart = (name: string, member: Parameters<typeof bySpan>[2], format = compact, exact = number) =>
    html`<div><h3>${name}</h3>${columns({ name, values: bySpan(rows, by, member, now) }, names, { label: `${name} by ${by}`, format, exact, from, to })}</div>`;
  return html`<div class="charts">${chart('Invocations', 'invocations')}${chart('Failed', 'failed')}${chart('Output tokens', 'outputTokens')}${chart('GPU time', 'gpuMs', duration, duration)}</div>`;
}
