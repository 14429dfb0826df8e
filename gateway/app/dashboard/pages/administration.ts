import { z } from '@hono/zod-openapi';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { MAX_REASON_LENGTH } from '#scheduler/quotas/limits.ts';
import { QUOTA_NAMES, quotaLabel } from '#scheduler/quotas/names.ts';
import { includesScope, SCOPES } from '#scheduler/tenants/rules.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import type { ApiKey } from '../../resources/tenants.ts';
import { QuotaChangeSchema } from '../../schemas/quotas.ts';
import { NewKeySchema } from '../../schemas/tenants.ts';
import { moment } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { empty, notice, table, tokenField } from '../html/parts.ts';
import { demand, may, type Page, tenantOf, type Visit, withTenant } from '../page.ts';
import type { NewKeyText } from '../session/sessions.ts';
import { quotaBars } from './usage-bars.ts';

const PATH = '/dashboard/administration';
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Choices of a duration. `value` is sent by the form, `words` are shown, and `ms` is the length (null for no end). */
type Choices = readonly (readonly [value: string, words: string, ms: number | null])[];

const LIFETIMES = [
  ['', 'does not expire', null],
  ['1d', 'a day', DAY_MS],
  ['30d', '30 days', 30 * DAY_MS],
  ['90d', '90 days', 90 * DAY_MS],
  ['365d', 'a year', 365 * DAY_MS],
] as const;
const LIMIT_DURATIONS = [
  ['', 'from now on', null],
  ['1h', 'for an hour', HOUR_MS],
  ['1d', 'for a day', DAY_MS],
  ['7d', 'for a week', 7 * DAY_MS],
  ['30d', 'for 30 days', 30 * DAY_MS],
] as const;

const keyForm = z.object({
  name: z.string().trim().pipe(NewKeySchema.shape.name),
  scopes: NewKeySchema.shape.scopes,
  lasts: z.enum(LIFETIMES.map(([value]) => value)),
});
const limitForm = z.object({
  quota: z.enum(QUOTA_NAMES),
  function: z.union([z.literal(''), z.string().regex(FUNCTION_NAME)]),
  limit: z.union([z.literal('').transform(() => null), z.coerce.number().int().min(0)]),
  lasts: z.enum(LIMIT_DURATIONS.map(([value]) => value)),
  reason: QuotaChangeSchema.shape.reason.unwrap(),
});

/** API keys and limits of a tenant, with the forms that change them. `created` is a new key, which only this answer shows. */
export function administrationPage(visit: Visit, created: NewKeyText | null): Page {
  demand(visit, 'admin');
  const { control, call, now, url } = visit;
  const tenant = tenantOf(visit);
  const done = url.searchParams.get('done');
  return {
    title: 'Administration',
    place: 'administration',
    head: html`<div class="head"><div class="titles"><h1>Administration</h1><p>Tenant ${tenant}</p></div></div>${
      done === 'limit' ? notice('good', 'The limit has changed.') : NONE
    }${created === null && done === 'key' ? notice('good', 'The key was created. It was shown once, and is not shown again.') : NONE}${
      created === null ? NONE : newKey(created)
    }`,
    live: false,
    fragments: [
      {
        id: 'keys',
        look: 'wide card',
        render: async () => html`<h2>API keys</h2>${keyTable(await control.tenants.keys(call, tenant), now)}`,
      },
      { id: 'new-key', look: 'wide card', render: () => keyCard(visit, tenant) },
      {
        id: 'limits',
        look: 'wide card',
        render: async () => html`<h2>Limits</h2>${quotaBars(await control.quotas.status(call, tenant), now)}`,
      },
      ...(may(visit, 'operator')
        ? [{ id: 'new-limit', look: 'wide card', render: () => limitCard(visit, tenant) }]
        : []),
    ],
  };
}

/**
 * Creates the key that the form describes. Passes it to `keep`, so that the next page can show it: no later call returns the key again. Returns the
 * address to redirect to.
 */
export async function createKey(
  visit: Visit,
  form: URLSearchParams,
  keep: (key: NewKeyText) => Promise<void>,
): Promise<string> {
  demand(visit, 'admin');
  const parsed = keyForm.safeParse({
    name: form.get('name') ?? '',
    scopes: form.getAll('scope'),
    lasts: form.get('lasts') ?? '',
  });
  if (!parsed.success)
    throw new GatewayError('invalid-input', 'The key needs a name of at most 64 characters and a scope.', {
      hint: 'Go back, and fill in both.',
    });
  const { name, scopes, lasts } = parsed.data;
  const expiresAt = endOf(LIFETIMES, lasts, visit.now);
  const tenant = tenantOf(visit);
  await keep(await visit.control.tenants.createKey(visit.call, tenant, { name, scopes, expiresAt }));
  return withTenant(PATH, visit, tenant, { done: 'key' });
}

/** Changes the limit that the form names. Returns the address to redirect to. */
export async function changeLimit(visit: Visit, form: URLSearchParams): Promise<string> {
  demand(visit, 'operator');
  const entries = Object.keys(limitForm.shape).map((name) => [name, (form.get(name) ?? '').trim()]);
  const parsed = limitForm.safeParse(Object.fromEntries(entries));
  if (!parsed.success)
    throw new GatewayError(
      'invalid-input',
      `The field "${parsed.error.issues[0]?.path.join('.')}" of the limit is not valid.`,
      { hint: 'Go back, and correct it: a limit is a whole number from 0, or empty for the default.' },
    );
  const { quota, function: fn, limit, lasts, reason } = parsed.data;
  const tenant = tenantOf(visit);
  await visit.control.quotas.set(visit.call, tenant, {
    quota,
    limit,
    expiresAt: endOf(LIMIT_DURATIONS, lasts, visit.now),
    ...(fn !== '' && { function: fn }),
    ...(reason !== '' && { reason }),
  });
  return withTenant(PATH, visit, tenant, { done: 'limit' });
}

function endOf(choices: Choices, chosenValue: string, now: number): string | undefined {
  const [, , ms = null] = choices.find(([value]) => value === chosenValue) ?? [];
  return ms === null ? undefined : new Date(now + ms).toISOString();
}

function newKey({ name, apiKey, id }: NewKeyText): Html {
  return html`<div class="card section"><h2>The new key ${name}</h2><p class="muted">Copy it now: it is not shown again. Its id is <code>${id}</code>.</p><pre class="console" tabindex="0" role="region" aria-label="The new key">${apiKey}</pre></div>`;
}

function keyTable(keys: readonly ApiKey[], now: number): Html {
  if (keys.length === 0) return empty('There is no key.');
  return table(
    'API keys, oldest first',
    [
      { head: 'Name' },
      { head: 'Id' },
      { head: 'Scopes' },
      { head: 'Created' },
      { head: 'Expires' },
      { head: 'Last used' },
    ],
    keys.map(({ name, id, scopes, createdAt, expiresAt, lastUsedAt }) => [
      name === '' ? '–' : name,
      html`<code>${id}</code>`,
      scopes.join(', '),
      moment(createdAt, now),
      expiresAt === null ? 'never' : moment(expiresAt, now),
      lastUsedAt === null ? 'never' : moment(lastUsedAt, now),
    ]),
  );
}

function keyCard(visit: Visit, tenant: string): Html {
  const ownScopes = visit.call.principal.scopes;
  const scopes = SCOPES.filter((scope) => includesScope(ownScopes, scope)).map(
    (scope) =>
      html`<label class="check"><input type="checkbox" name="scope" value="${scope}"${scope === 'invoke' ? html` checked` : NONE}> ${scope}</label>`,
  );
  return html`<h2>Create a key</h2><form method="post" action="${withTenant(`${PATH}/keys`, visit, tenant)}">${tokenField(visit.formToken)}
<div class="row"><div><label for="key-name">Name</label><input id="key-name" name="name" required maxlength="64" autocomplete="off"></div>
<div>${select('key-lasts', 'Lasts', LIFETIMES)}</div></div>
<fieldset><legend>Scopes</legend>${scopes}</fieldset>
<div class="actions"><button class="primary">Create key</button></div></form>`;
}

function limitCard(visit: Visit, tenant: string): Html {
  const quotas = QUOTA_NAMES.map((name) => html`<option value="${name}">${quotaLabel(name)}</option>`);
  return html`<h2>Change a limit</h2><form method="post" action="${withTenant(`${PATH}/limits`, visit, tenant)}">${tokenField(visit.formToken)}
<div class="row"><div><label for="quota">Quota</label><select id="quota" name="quota">${quotas}</select></div>
<div><label for="limit">Limit (empty: the platform's default)</label><input id="limit" name="limit" type="number" min="0" step="1"></div>
<div><label for="limit-function">Function (empty: the whole tenant)</label><input id="limit-function" name="function" maxlength="63" autocomplete="off"></div>
<div>${select('limit-lasts', 'Lasts', LIMIT_DURATIONS)}</div>
<div><label for="reason">Reason</label><input id="reason" name="reason" maxlength="${MAX_REASON_LENGTH}" autocomplete="off"></div></div>
<div class="actions"><button class="primary">Change limit</button></div></form>`;
}

function select(id: string, label: string, choices: Choices): Html {
  return html`<label for="${id}">${label}</label><select id="${id}" name="lasts">${choices.map(([value, words]) => html`<option value="${value}">${words}</option>`)}</select>`;
}
