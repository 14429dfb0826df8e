import type { FunctionVersion } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import type { Alias, Share } from '../../resources/releases.ts';
import type { StoredSchedule } from '../../resources/schedules.ts';
import { bytes, duration, jsonText, moment, shortVersion } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { badge, code, empty, facts, notice, table } from '../html/parts.ts';
import { may, once, type Page, type Visit } from '../page.ts';

/** Maximum past states of an alias that the page shows. */
const MAX_HISTORY = 10;

/** One function: its aliases with links to roll back, its versions, the history of its first alias (often `live`), its schedules, its manifest. */
export async function functionPage(visit: Visit, name: string): Promise<Page> {
  const { control, call, now, url } = visit;
  const versions = await control.versions(call, name);
  const [newest] = versions;
  if (newest === undefined) throw new GatewayError('unknown-function', `There is no function "${name}".`);
  const aliases = once(() => control.releases.aliases(call, name));
  const path = `/dashboard/functions/${encodeURIComponent(name)}`;

  return {
    title: `Function ${name}`,
    place: 'functions',
    head: html`<p class="crumbs"><a href="/dashboard/functions">Functions</a></p>
<div class="head"><div class="titles"><h1>${name}</h1><p>${newest.manifest.description ?? ''}</p></div><a class="button" href="/dashboard/invocations?function=${encodeURIComponent(name)}">Its invocations</a></div>
${url.searchParams.get('done') === 'rolled-back' ? notice('good', 'Rolled back. Running invocations keep the version with which they began.') : NONE}`,
    live: true,
    fragments: [
      {
        id: 'aliases',
        look: 'wide card',
        render: async () =>
          html`<h2>Aliases</h2>${aliasTable(await aliases(), path, may(visit, 'deploy') && newest.platform !== true, now)}`,
      },
      {
        id: 'versions',
        look: 'wide card',
        render: () => html`<h2>Versions</h2>${versionTable(versions, now)}`,
      },
      {
        id: 'history',
        look: 'wide card',
        render: async () => {
          const liveAlias = (await aliases())[0];
          if (liveAlias === undefined) return NONE;
          const history = await control.releases.history(call, name, liveAlias.alias);
          return html`<h2>What <code>${liveAlias.alias}</code> meant</h2>${historyTable(history.slice(0, MAX_HISTORY), now)}`;
        },
      },
      {
        id: 'schedules',
        look: 'wide card',
        render: async () => {
          const allSchedules = await control.schedules.list(call);
          const ownSchedules = allSchedules.filter((schedule) => schedule.function.split('@', 1)[0] === name);
          return ownSchedules.length === 0 ? NONE : html`<h2>Schedules</h2>${scheduleTable(ownSchedules, now)}`;
        },
      },
      {
        id: 'manifest',
        look: 'wide card',
        render: async () => {
          const fullVersion = await control.function(call, { name, version: newest.version });
          return html`<h2>Manifest of the newest version</h2>${facts([
            ['Component', bytes(newest.componentBytes)],
            ['sha256', html`<code title="${newest.componentHash}">${newest.componentHash.slice(0, 16)}</code>`],
          ])}<details><summary>pie.json</summary><pre class="console scroll" tabindex="0" role="region" aria-label="Manifest">${jsonText((fullVersion ?? newest).manifest)}</pre></details>`;
        },
      },
    ],
  };
}

/** The versions that an alias serves, each with its share of invocations. */
export function sharesText(shares: readonly Share[]): Html {
  if (shares.length === 0) return html`nothing`;
  return html`<span class="shares">${shares.map(({ version, weight }) => html`<span><code title="${version}">${shortVersion(version)}</code> ${weight}%</span>`)}</span>`;
}

function aliasTable(aliases: readonly Alias[], path: string, mayRollBack: boolean, now: number): Html {
  if (aliases.length === 0)
    return empty('It has no alias.', html`<code>pie alias set</code> gives versions names and splits invocations.`);
  const rollBackLink = ({ alias, tag, revision }: Alias) =>
    mayRollBack && tag !== true && revision > 1
      ? html`<a class="button" href="${path}/rollback?${new URLSearchParams({ alias }).toString()}">Roll back…</a>`
      : NONE;
  return table(
    'Aliases and the versions that they serve',
    [
      { head: 'Alias' },
      { head: 'Serves' },
      { head: 'Changed' },
      { head: 'By' },
      { head: 'Message' },
      { head: 'Roll back', quiet: true, numeric: true },
    ],
    aliases.map((alias) => [
      html`<strong>${alias.alias}</strong>${alias.tag === true ? html` <small>tag</small>` : NONE}`,
      sharesText(alias.shares),
      moment(alias.changedAt, now),
      html`<code>${alias.changedBy}</code>`,
      alias.message ?? '–',
      rollBackLink(alias),
    ]),
  );
}

function versionTable(versions: readonly FunctionVersion[], now: number): Html {
  return table(
    'Versions, newest first',
    [
      { head: 'Version' },
      { head: 'In service' },
      { head: 'Deployed' },
      { head: 'Size', numeric: true },
      { head: 'Message' },
    ],
    versions.map(({ version, aliases, createdAt, componentBytes, message, quarantinedAt }) => [
      html`<code title="${version}">${shortVersion(version)}</code>${quarantinedAt === undefined ? NONE : html` ${badge('quarantined', 'bad')}`}`,
      aliases === undefined || aliases.length === 0
        ? html`<span class="muted">no</span>`
        : html`<span class="shares">${aliases.map(({ alias, weight }) => badge(weight === 100 ? alias : `${alias} ${weight}%`, 'good'))}</span>`,
      moment(createdAt, now),
      bytes(componentBytes),
      message ?? '–',
    ]),
  );
}

function scheduleTable(schedules: readonly StoredSchedule[], now: number): Html {
  return table(
    'Schedules of the function',
    [{ head: 'Name' }, { head: 'Runs' }, { head: 'Times' }, { head: 'Next' }, { head: 'Last' }],
    schedules.map((schedule) => [
      schedule.name,
      html`<code>${schedule.function}</code>`,
      timesOf(schedule),
      nextRun(schedule, now),
      schedule.last === null ? '–' : lastRun(schedule.last, now),
    ]),
  );
}

function timesOf({ cron, timezone, everyMs }: StoredSchedule): Html | string {
  return everyMs === undefined ? html`<code>${cron}</code> ${timezone}` : `every ${duration(everyMs)}`;
}

function nextRun({ nextAt, suspended }: StoredSchedule, now: number): Html | string {
  if (suspended !== undefined) return html`suspended <small>${suspended}</small>`;
  return nextAt === null ? '–' : moment(nextAt, now);
}

function lastRun({ at, invocation, error }: NonNullable<StoredSchedule['last']>, now: number): Html {
  const outcome =
    invocation === undefined
      ? code(error?.code ?? '')
      : html`<a class="mono" href="/dashboard/invocations/${encodeURIComponent(invocation)}">${invocation}</a>`;
  return html`${moment(at, now)}: ${outcome}`;
}

function historyTable(history: readonly Alias[], now: number): Html {
  return table(
    'Past states of the alias, newest first',
    [{ head: 'Revision' }, { head: 'Served' }, { head: 'Since' }, { head: 'By' }, { head: 'Message' }],
    history.map(({ revision, shares, changedAt, changedBy, message, restores }) => [
      revision,
      sharesText(shares),
      moment(changedAt, now),
      html`<code>${changedBy}</code>`,
      html`${restores === undefined ? NONE : html`<small>back to ${restores}</small> `}${message ?? (restores === undefined ? '–' : '')}`,
    ]),
  );
}
