import { z } from '@hono/zod-openapi';
import { aliasNameFault, LIVE, MAX_MESSAGE } from '#scheduler/functions/aliases.ts';
import type { Alias, FunctionVersion, Share, StoredSchedule } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import {
  badge,
  bytes,
  code,
  duration,
  empty,
  facts,
  type Html,
  html,
  jsonText,
  moment,
  NONE,
  notice,
  shortVersion,
  table,
  tokenField,
} from '../html/parts.ts';
import { demand, may, once, type Page, type Visit } from '../page.ts';

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
function sharesText(shares: readonly Share[]): Html {
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

const ALIASES_HINT = 'The page of the function lists its aliases.';

const aliasSchema = z.string().refine((alias) => aliasNameFault(alias) === null);

const formSchema = z.object({
  alias: aliasSchema,
  revision: z.coerce.number().int().min(0),
  message: z.string().max(MAX_MESSAGE),
});

/** Shows the changes of a rollback, and the button that performs it. */
export async function rollbackPage(visit: Visit, name: string): Promise<Page> {
  demand(visit, 'deploy');
  const { control, call, url } = visit;
  const parsed = aliasSchema.safeParse(url.searchParams.get('alias') ?? LIVE);
  if (!parsed.success) throw new GatewayError('not-found', 'There is no alias of this name.', { hint: ALIASES_HINT });
  const alias = parsed.data;
  // Read the revision first: if the alias changes before the plan is read, `rollBack` refuses to undo that change unseen.
  const current = (await control.releases.aliases(call, name)).find((entry) => entry.alias === alias);
  if (current === undefined)
    throw new GatewayError('not-found', `The function "${name}" has no alias "${alias}".`, { hint: ALIASES_HINT });
  const plan = await control.releases.rollback(call, name, { alias, dryRun: true });
  const path = `/dashboard/functions/${encodeURIComponent(name)}`;

  return {
    title: `Roll back ${name}`,
    place: 'functions',
    head: html`<p class="crumbs"><a href="/dashboard/functions">Functions</a> / <a href="${path}">${name}</a></p>
<div class="head"><div class="titles"><h1>Roll back <code>${alias}</code></h1><p>Nothing has changed yet. New invocations of ${alias} would run what it served before; running ones go on as they began.</p></div></div>`,
    live: false,
    fragments: [
      {
        id: 'plan',
        look: 'wide card',
        render: () =>
          html`<h2>What changes</h2>${facts([
            ['Serves now', sharesText(plan.from)],
            ['Would serve', sharesText(plan.to)],
          ])}<h3>Differences</h3>${
            plan.changes.length === 0
              ? empty('Manifest, component, secrets and environment are the same.')
              : html`<div class="diff">${table(
                  'Differences',
                  [{ head: 'Field' }, { head: 'Now' }, { head: 'After' }],
                  plan.changes.map(({ field, from, to }) => [
                    html`<code>${field}</code>`,
                    from === null ? '–' : html`<code class="from">${changedText(field, from)}</code>`,
                    to === null ? '–' : html`<code class="to">${changedText(field, to)}</code>`,
                  ]),
                )}</div>`
          }`,
      },
      {
        id: 'confirm',
        look: 'wide card',
        render: () =>
          html`<h2 class="unseen">Confirm</h2><form method="post" action="${path}/rollback?alias=${alias}">${tokenField(visit.formToken)}
<input type="hidden" name="alias" value="${alias}"><input type="hidden" name="revision" value="${current.revision}">
<label for="message">Why (optional, kept in the history)</label><input id="message" name="message" maxlength="${MAX_MESSAGE}" autocomplete="off">
<div class="actions"><button class="primary">Roll back ${alias}</button><a class="button" href="${path}">Leave it</a></div></form>`,
      },
    ],
  };
}

/** The text of a changed field. Shortens the component's hash: a prefix is enough to tell two hashes apart. */
function changedText(field: string, text: string) {
  return field === 'component' ? html`<span title="${text}">${shortVersion(text)}</span>` : html`${text}${NONE}`;
}

/** Performs the rollback that the form confirms. Returns the address to redirect to. */
export async function rollBack(visit: Visit, name: string, form: URLSearchParams): Promise<string> {
  demand(visit, 'deploy');
  const parsed = formSchema.safeParse({
    alias: form.get('alias'),
    revision: form.get('revision'),
    message: form.get('message') ?? '',
  });
  if (!parsed.success)
    throw new GatewayError('invalid-input', 'The form is not complete.', {
      hint: 'Go back, reload the page and try again.',
    });
  const { alias, revision, message } = parsed.data;
  await visit.control.releases.rollback(visit.call, name, {
    alias,
    ifRevision: revision,
    ...(message === '' ? {} : { message }),
  });
  return `/dashboard/functions/${encodeURIComponent(name)}?done=rolled-back`;
}
