import type { InvocationStatus } from '../../control.ts';
import type { InvocationPage } from '../../resources/operations.ts';
import { moment } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { empty, table } from '../html/parts.ts';
import { once, type Page, tenantOf, type Visit, withTenant } from '../page.ts';
import { invocationTable } from './invocation-table.ts';
import { causeTable, firstTokenChart, hourTiles, MINUTES, minuteTable, tokensChart } from './last-hour.ts';
import { quotaBars } from './usage-bars.ts';

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
