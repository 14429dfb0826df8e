import { z } from '@hono/zod-openapi';
import { GatewayError } from '../../errors/gateway-error.ts';
import { SPANS, type Span, type UsageRow } from '../../resources/quotas.ts';
import { duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { empty, table } from '../html/parts.ts';
import { type Page, tenantOf, type Visit, withTenant } from '../page.ts';
import { quotaBars } from './usage-bars.ts';
import { firstShown, usageCharts } from './usage-charts.ts';

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
