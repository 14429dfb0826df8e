import type { FunctionVersion } from '../../control.ts';
import { moment, shortVersion } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { badge, empty, table } from '../html/parts.ts';
import type { Page, Visit } from '../page.ts';

export function functionsPage(visit: Visit): Page {
  const { control, call } = visit;
  return {
    title: 'Functions',
    place: 'functions',
    head: html`<div class="head"><div class="titles"><h1>Functions</h1><p>Tenant ${call.principal.tenant}</p></div></div>`,
    live: true,
    fragments: [
      {
        id: 'list',
        look: 'wide card',
        render: async () => {
          const functions = await control.functions(call);
          if (functions.length === 0)
            return empty(
              'Nothing is deployed.',
              html`Begin with <code>pie new hello</code>, then <code>pie deploy hello</code>.`,
            );
          return html`<h2 class="unseen">List</h2>${functionTable(functions, visit.now)}`;
        },
      },
    ],
  };
}

function functionTable(functions: readonly FunctionVersion[], now: number): Html {
  return table(
    'Functions by name',
    [{ head: 'Function' }, { head: 'About' }, { head: 'Live' }, { head: 'Deployed' }],
    functions.map(({ name, version, manifest, live, createdAt, platform, quarantinedAt }) => [
      html`<a href="/dashboard/functions/${encodeURIComponent(name)}">${name}</a>${quarantinedAt === undefined ? NONE : html` ${badge('quarantined', 'bad')}`}`,
      html`<span class="muted">${manifest.description ?? '–'}</span>`,
      platform === true ? badge('of the platform') : liveCell(live, version),
      moment(createdAt, now),
    ]),
  );
}

/** The versions that `live` serves; `version` when the answer does not state them. */
function liveCell(live: FunctionVersion['live'], version: string): Html {
  if (live === undefined) return html`<code>${shortVersion(version)}</code>`;
  if (live.length === 0) return badge('nothing');
  return html`<span class="shares">${live.map((share) => html`<span><code>${shortVersion(share.version)}</code>${share.weight === 100 ? NONE : ` ${share.weight}%`}</span>`)}</span>`;
}
