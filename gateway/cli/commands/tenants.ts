import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { DEFAULT_SCHEDULES } from '#scheduler/schedules/rules.ts';
import { SCOPES, type Scope } from '#scheduler/tenants/rules.ts';
import { quotaAmount } from '../../app/amounts.ts';
import { SPANS } from '../../app/bounds.ts';
import type { CreatedKey, QuotaStatus, Tenant, TenantChange, UsageRow } from '../../app/control.ts';
import { type Call, defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, counted, duration, latency, number, parseSpan, targetsText, wholeNumber } from '../format.ts';
import { readHidden, type Terminal } from '../terminal.ts';

const name = { name: 'tenant', help: 'name of the tenant', required: true } as const;
const SETTINGS = [
  {
    flags: '--weight <number>',
    help: 'weight in the fair share between waiting tenants: 1 to 1000 (100 for a new tenant)',
    // The gateway checks the bounds.
    parse: wholeNumber(0, 999_999),
  },
  latency('latency targets for invocations of functions that state none'),
] as const;
const DEFAULT_ENTRIES = 50;

export const tenantsList = defineCommand({
  name: 'tenants list',
  summary: 'List the tenants',
  examples: [{ line: 'pie tenants list', does: 'lists all tenants for an operator, else your own' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const tenants = await client.tenants.list({ signal });
    terminal.value(tenants);
    table(terminal, tenants);
    return EXIT.ok;
  },
});

export const tenantsCreate = defineCommand({
  name: 'tenants create',
  summary: 'Create a tenant',
  arguments: [name],
  options: SETTINGS,
  examples: [
    { line: 'pie tenants create acme', does: 'creates it; next: pie keys create first --tenant acme --scopes admin' },
  ],
  async run({ args: [tenant], options, terminal, signal, connect }) {
    const { client } = await connect();
    const createdTenant = await client.tenants.create(tenant, changeOf(options), { signal });
    terminal.value(createdTenant);
    terminal.print(`Created ${tenant}.`);
    terminal.note(`Next, its first key: pie keys create first --tenant ${tenant} --scopes admin`);
    return EXIT.ok;
  },
});

export const tenantsShow = defineCommand({
  name: 'tenants show',
  summary: 'Show a tenant',
  arguments: [name],
  examples: [{ line: 'pie tenants show acme', does: 'shows its weight, its targets and whether it is suspended' }],
  async run({ args: [tenant], terminal, signal, connect }) {
    const { client } = await connect();
    const shownTenant = await client.tenants.get(tenant, { signal });
    terminal.value(shownTenant);
    table(terminal, [shownTenant]);
    return EXIT.ok;
  },
});

export const tenantsSet = defineCommand({
  name: 'tenants set',
  summary: 'Change the weight or the latency targets of a tenant',
  arguments: [name],
  options: SETTINGS,
  examples: [
    { line: 'pie tenants set acme --weight 200', does: 'doubles its share' },
    { line: 'pie tenants set acme --latency 300,40', does: 'gives targets to its functions that state none' },
  ],
  run: async ({ args: [tenant], options, terminal, signal, connect }) => {
    const change = changeOf(options);
    if (Object.values(change).every((value) => value === undefined))
      throw new Failure('No setting was given.', { advice: 'Add --weight or --latency.' });
    const { client } = await connect();
    const changedTenant = await client.tenants.change(tenant, change, { signal });
    terminal.value(changedTenant);
    terminal.print(
      `${tenant} has the weight ${changedTenant.weight} and the latency targets ${targetsText(changedTenant.latency)} now.`,
    );
    if (change.latency)
      terminal.note(
        `The quota latency-invocations grants them: pie quota set latency-invocations 16 --tenant ${tenant}`,
      );
    return EXIT.ok;
  },
});

export const tenantsSuspend = defineCommand({
  name: 'tenants suspend',
  summary: 'Refuse the keys of a tenant and start none of its invocations',
  description:
    'Within 2 s its keys are refused, and its queued invocations no longer start. Open event streams end within 17 s. Running invocations continue, and requests that wait for them may still get their outcome; `pie cancel` ends them.',
  arguments: [name],
  examples: [{ line: 'pie tenants suspend acme', does: 'suspends it until pie tenants resume acme' }],
  run: ({ args: [tenant], terminal, signal, connect }) => suspend(tenant, true, { terminal, signal, connect }),
});

export const tenantsResume = defineCommand({
  name: 'tenants resume',
  summary: 'Resume a suspended tenant',
  arguments: [name],
  examples: [{ line: 'pie tenants resume acme', does: 'accepts its keys again and starts its waiting invocations' }],
  run: ({ args: [tenant], terminal, signal, connect }) => suspend(tenant, false, { terminal, signal, connect }),
});

export const audit = defineCommand({
  name: 'audit',
  summary: 'Show administrative changes: deploys, aliases, keys, secrets, quotas, tenants',
  options: [
    { flags: '--tenant <name>', help: 'only this tenant (default for operators: all)' },
    {
      flags: '--limit <number>',
      help: `most entries, at most 1000 (default: ${DEFAULT_ENTRIES})`,
      // The gateway checks the bounds.
      parse: wholeNumber(0, 999_999),
    },
  ],
  examples: [
    { line: 'pie audit --limit 20', does: 'shows the last twenty changes, newest first' },
    { line: 'pie audit --tenant acme --json', does: 'prints the changes of one tenant with all details' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const { tenant, limit = DEFAULT_ENTRIES } = options;
    const entries = await client.tenants.audit({ tenant, limit, signal });
    terminal.value(entries);
    terminal.table(
      ['WHEN', 'TENANT', 'WHO', 'ACT', 'TARGET', 'DETAILS'],
      entries.map((entry) => [
        entry.at.replace(/\.\d+Z$/, 'Z'),
        entry.tenant,
        entry.actor,
        entry.action,
        entry.target,
        Object.entries(entry.details)
          .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
          .join(' '),
      ]),
      'No changes were recorded yet.',
    );
    return EXIT.ok;
  },
});

async function suspend(
  tenant: string,
  suspended: boolean,
  { terminal, signal, connect }: Pick<Call, 'terminal' | 'signal' | 'connect'>,
): Promise<number> {
  const { client } = await connect();
  terminal.value(await client.tenants.change(tenant, { suspended }, { signal }));
  terminal.print(suspended ? `Suspended ${tenant}.` : `Resumed ${tenant}.`);
  return EXIT.ok;
}

function changeOf({ weight, latency }: OptionValues<typeof SETTINGS>): TenantChange {
  return { weight, latency: latency === false ? null : latency };
}

function table(terminal: Terminal, tenants: readonly Tenant[]): void {
  terminal.table(
    ['NAME', 'WEIGHT', 'TARGETS', 'STATE', 'CREATED'],
    tenants.map((t) => [
      t.name,
      String(t.weight),
      targetsText(t.latency),
      t.suspended ? 'suspended' : 'active',
      ago(t.createdAt),
    ]),
    'There are none.',
  );
}

const tenant = { flags: '--tenant <name>', help: 'another tenant than your key’s (operators)' } as const;
const id = { name: 'key', help: 'id of the key, such as key_3f9ac41e07b2', required: true } as const;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const keysList = defineCommand({
  name: 'keys list',
  summary: 'List the API keys',
  options: [tenant],
  examples: [
    { line: 'pie keys list', does: 'shows scopes, last use and expiry of each key' },
    { line: 'pie keys list --tenant acme', does: 'lists the keys of another tenant' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const keys = await client.tenants.keys(options.tenant, { signal });
    terminal.value(keys);
    terminal.table(
      ['ID', 'NAME', 'SCOPES', 'CREATED', 'LAST USED', 'EXPIRES'],
      keys.map((key) => [
        key.id,
        key.name,
        key.scopes.join(','),
        ago(key.createdAt),
        key.lastUsedAt === null ? 'never' : ago(key.lastUsedAt),
        key.expiresAt === null ? 'never' : expiryText(key.expiresAt),
      ]),
      'There are none.',
    );
    return EXIT.ok;
  },
});

export const keysCreate = defineCommand({
  name: 'keys create',
  summary: 'Create an API key and show it once',
  arguments: [{ name: 'name', help: 'name of the key', required: true }],
  options: [
    {
      flags: '--scopes <list>',
      help: `scopes: ${SCOPES.join(', ')} (default: invoke)`,
      parse: parseScopes,
    },
    {
      flags: '--expires <span>',
      help: 'time until it expires, such as 12h or 30d (default: never)',
      parse: parseSpan,
    },
    tenant,
  ],
  examples: [
    { line: 'pie keys create website', does: 'creates a key that may invoke functions' },
    {
      line: 'pie keys create ci --scopes invoke,deploy --expires 90d',
      does: 'creates a key that may deploy for three months',
    },
    { line: 'pie keys create first --tenant acme --scopes admin', does: 'creates the first key of another tenant' },
  ],
  async run({ args: [name], options, terminal, signal, connect }) {
    const { client, credentials } = await connect();
    const { scopes = ['invoke'], expires: span, tenant } = options;
    const expiresAt = span === undefined ? undefined : new Date(Date.now() + span).toISOString();
    const key = await client.tenants.createKey({ name, scopes, expiresAt }, tenant, { signal });
    showKey(terminal, key, credentials.url);
    return EXIT.ok;
  },
});

export const keysRotate = defineCommand({
  name: 'keys rotate',
  summary: 'Replace an API key; the old key keeps working for a while',
  description:
    'Makes a key with the same name, scopes and expiry. The old key stops working after the grace period; distribute the new one before.',
  arguments: [id],
  options: [
    {
      flags: '--grace <span>',
      help: 'time for which the old key keeps working, such as 0s or 1d (default: 1h)',
      parse: parseSpan,
    },
    tenant,
  ],
  examples: [
    { line: 'pie keys rotate key_3f9ac41e07b2 --grace 1d', does: 'leaves a day to replace the key everywhere' },
  ],
  async run({ args: [key], options, terminal, signal, connect }) {
    const { client, credentials } = await connect();
    const { grace: graceMs = HOUR_MS, tenant } = options;
    const newKey = await client.tenants.rotateKey(key, graceMs, tenant, { signal });
    showKey(terminal, newKey, credentials.url);
    terminal.note(graceMs === 0 ? `${key} is refused from now on.` : `${key} works for another ${duration(graceMs)}.`);
    return EXIT.ok;
  },
});

export const keysRemove = defineCommand({
  name: 'keys remove',
  summary: 'Remove an API key; gateways refuse it within 2 s',
  description:
    'Open event streams of the key end within 17 s. Its invocations continue, and requests that wait for them may still get their outcome; `pie cancel` ends them.',
  arguments: [id],
  options: [tenant],
  examples: [
    { line: 'pie keys remove key_3f9ac41e07b2', does: 'removes it, unless it is the last admin key of the tenant' },
  ],
  async run({ args: [key], options, terminal, signal, connect }) {
    const { client } = await connect();
    await client.tenants.removeKey(key, options.tenant, { signal });
    terminal.value({ removed: key });
    terminal.print(`Removed ${key}.`);
    return EXIT.ok;
  },
});

/** Prints the key alone as the result, for scripts; remarks go to standard error. */
function showKey(terminal: Terminal, key: CreatedKey, url: string): void {
  terminal.value(key);
  terminal.note(`${key.id} of ${key.tenant} may ${key.scopes.join(', ')}. The key is shown only once:`);
  terminal.print(key.apiKey);
  terminal.note(`Use it: PIE_URL=${url} PIE_API_KEY=… pie list, or the header Authorization: Bearer …`);
}

function parseScopes(list: string): Scope[] {
  return list.split(',').map((word) => {
    const scope = SCOPES.find((known) => known === word.trim());
    if (scope === undefined) throw new Failure(`"${word}" is not a scope. The scopes are ${SCOPES.join(', ')}.`);
    return scope;
  });
}

function expiryText(time: string): string {
  const remainingMs = Date.parse(time) - Date.now();
  if (remainingMs <= 0) return `${ago(time)} (expired)`;
  return remainingMs < 2 * DAY_MS ? `in ${duration(remainingMs)}` : `in ${Math.floor(remainingMs / DAY_MS)} d`;
}

const ofTenant = { flags: '--tenant <tenant>', help: 'another tenant (operators)' } as const;
/** Width of the bar that shows the used part of a limit. */
const BAR_CELLS = 20;

export const quotaList = defineCommand({
  name: 'quota list',
  byDefault: true,
  summary: 'Show limits and how much of each is used',
  description: 'Windows begin with the minute, day and month in UTC. Quotas without a limit are not listed.',
  options: [
    ofTenant,
    { flags: '--function <function>', help: 'only the limits of the whole tenant and of this function' },
  ],
  examples: [
    { line: 'pie quota', does: 'shows the limits of your tenant and its functions' },
    { line: 'pie quota list --function story --json', does: 'prints the limits of one function as JSON' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const query = { signal, tenant: options.tenant, function: options.function };
    const quotas = await client.quotas.list(query);
    terminal.value(quotas);
    const hasBars = terminal.interactive;
    terminal.table(
      ['QUOTA', 'FUNCTION', 'USED', 'LIMIT', ...(hasBars ? [''] : []), 'RESETS', 'SET BY'],
      quotas.map((status) => [
        status.quota,
        status.function ?? '',
        quotaAmount(status.quota, status.used),
        quotaAmount(status.quota, status.limit),
        ...(hasBars ? [bar(status)] : []),
        status.resetsAt === null ? '' : `in ${duration(Math.max(0, Date.parse(status.resetsAt) - Date.now()))}`,
        setBy(status),
      ]),
      'No limit binds.',
    );
    return EXIT.ok;
  },
});

export const quotaSet = defineCommand({
  name: 'quota set',
  summary: 'Set a limit of a tenant or a function',
  description: `For operators. The quotas are ${QUOTA_NAMES.join(', ')}. A permanent limit removes an override, which is a limit that expires.`,
  arguments: [
    { name: 'quota', help: 'name of the quota', required: true },
    { name: 'limit', help: 'a whole number, or "none" for the platform’s default', required: true },
  ],
  options: [
    ofTenant,
    { flags: '--function <function>', help: 'only for this function' },
    { flags: '--for <time>', help: 'override the limit for this time: 30s, 15m, 2h, 7d', parse: parseSpan },
    { flags: '--reason <text>', help: 'reason, stored with the limit' },
  ],
  examples: [
    { line: 'pie quota set requests-per-minute 60 --tenant acme', does: 'sets a permanent limit' },
    {
      line: 'pie quota set tokens-per-day 5000000 --tenant acme --for 2h --reason launch',
      does: 'overrides the limit for two hours',
    },
    { line: 'pie quota set kv-pages none --tenant acme', does: 'restores the platform’s default' },
  ],
  async run({ args: [name, limitText], options, terminal, signal, connect }) {
    const { client } = await connect();
    const { tenant, function: fn, for: forMs, reason } = options;
    const status = await client.quotas.set(
      {
        // The gateway refuses an unknown quota and lists the known names.
        quota: name as QuotaStatus['quota'],
        limit: limitOf(limitText),
        expiresAt: forMs === undefined ? undefined : new Date(Date.now() + forMs).toISOString(),
        function: fn,
        reason,
      },
      { signal, tenant },
    );
    terminal.value(status);
    const outcomeText =
      status === null ? unlimited(name) : `at most ${quotaAmount(status.quota, status.limit)}, set by ${setBy(status)}`;
    terminal.print(`${name} of ${holderOf(tenant, fn)}: ${outcomeText}.`);
    return EXIT.ok;
  },
});

/**
 * Describes a quota for which neither the tenant nor the platform sets a limit. The quota `schedules` then has Pie's own default. The quota
 * `latency-invocations` is a grant: its limit is the number of invocations that may have latency targets, and without a limit none may.
 */
function unlimited(quota: string): string {
  if (quota === 'schedules') return `the default again, at most ${number(DEFAULT_SCHEDULES)}`;
  return quota === 'latency-invocations' ? 'no limit now, and so no latency targets are granted' : 'no limit now';
}

/** The tenant or function of a limit, such as `tenant acme` or `function story of tenant acme`. */
function holderOf(tenant: string | undefined, fn: string | undefined): string {
  const tenantText = tenant === undefined ? 'your tenant' : `tenant ${tenant}`;
  return fn === undefined ? tenantText : `function ${fn} of ${tenantText}`;
}

/** Checks only that the text is a number; the gateway checks the limit itself. */
function limitOf(text: string): number | null {
  if (text === 'none') return null;
  if (/^\d[\d_,]*$/.test(text)) return Number(text.replaceAll(/[_,]/g, ''));
  throw new Failure(`"${text}" is not a valid limit.`, {
    advice: 'Give a whole number such as 1000 or 5_000_000, or "none".',
  });
}

function setBy({ source, override }: QuotaStatus): string {
  if (override === undefined) return source === 'default' ? 'the platform' : 'the operator';
  const reason = override.reason === '' ? '' : ` (${override.reason})`;
  return `${override.author} until ${override.expiresAt}${reason}`;
}

function bar({ used, limit }: QuotaStatus): string {
  const filledCells = limit === 0 ? BAR_CELLS : Math.min(BAR_CELLS, Math.floor((used / limit) * BAR_CELLS));
  return '█'.repeat(filledCells) + '░'.repeat(BAR_CELLS - filledCells);
}

export const usage = defineCommand({
  name: 'usage',
  summary: 'Show usage: invocations, tokens, GPU and CPU time',
  description:
    'Shows usage by hour, day or month in UTC, by default from the start of this month to now. Spans without usage are left out.',
  options: [
    { flags: '--from <time>', help: 'begin: a date or a time in ISO 8601', parse: parseTime },
    { flags: '--to <time>', help: 'end, in the same formats (default: now)', parse: parseTime },
    { flags: '--by <span>', help: 'length of a row’s time span', choices: SPANS },
    { flags: '--per-function', help: 'a row for each function' },
    { flags: '--csv', help: 'print all numbers as CSV' },
    { flags: '--tenant <tenant>', help: 'another tenant (operators)' },
  ],
  examples: [
    { line: 'pie usage', does: 'shows this month by day' },
    {
      line: 'pie usage --from 2026-11-01 --by hour --per-function --csv > usage.csv',
      does: 'writes a file for a spreadsheet',
    },
  ],
  async run({ options, terminal, signal, connect }) {
    const { csv, ...filters } = options;
    if (csv && terminal.json) throw new Failure('--csv and --json cannot be combined.', { advice: 'Use one of them.' });
    const { client } = await connect();
    const query = { ...filters, signal };
    if (csv) {
      await terminal.text(await client.quotas.usageCsv(query));
      return EXIT.ok;
    }
    const rows = await client.quotas.usage(query);
    terminal.value(rows);
    terminal.table(
      HEADING,
      rows.map((row) => cells(row, query.by === 'hour')),
      'Nothing was used in that time.',
    );
    return EXIT.ok;
  },
});

const HEADING = ['FROM', 'FUNCTION', 'INVOCATIONS', 'FAILED', 'TOKENS IN', 'CACHED', 'OUT', 'GPU', 'CPU', 'PAGE-S'];

function cells(row: UsageRow, byHour: boolean): string[] {
  // Every row begins on a full hour, so leave out the seconds. Rows by day or month begin at midnight: leave out the time, too.
  const at = row.at.replace(/:00(\.000)?Z$/, 'Z');
  return [
    byHour ? at : at.replace('T00:00Z', ''),
    row.function ?? 'all',
    number(row.invocations),
    number(row.failed),
    number(row.inputTokens),
    number(row.cachedTokens),
    number(row.outputTokens),
    duration(row.gpuMs),
    duration(row.cpuMs),
    number(row.pageSeconds),
  ];
}

/** Parses a date or a time; a date means its start in UTC. */
function parseTime(value: string): string {
  const parsed = Date.parse(value);
  if (Number.isFinite(parsed) && /^\d{4}-/.test(value)) return new Date(parsed).toISOString();
  throw new Failure('It must be a date or a time such as 2026-11-20 or 2026-11-20T05:12:00Z.');
}

const secretName = { name: 'name', help: 'name of the secret, such as OPENAI_KEY', required: true } as const;

export const secretsList = defineCommand({
  name: 'secrets list',
  summary: 'List the secrets, without their values',
  description:
    'Lists the secrets of the tenant. A function gets those that its pie.json names under "secrets", with the values of its deploy.',
  examples: [{ line: 'pie secrets list', does: 'shows names, revisions, and the functions that use them' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const secrets = await client.secrets.list({ signal });
    terminal.value(secrets);
    terminal.table(
      ['NAME', 'REVISION', 'CHANGED', 'USED BY'],
      secrets.map(({ name, revision, changedAt, usedBy }) => [
        name,
        String(revision),
        ago(changedAt),
        usedBy
          .map((use) => `${use.function}${use.revision === revision ? '' : ` (revision ${use.revision})`}`)
          .join(', '),
      ]),
      'There are none. Next: pie secrets set NAME',
    );
    return EXIT.ok;
  },
});

export const secretsSet = defineCommand({
  name: 'secrets set',
  summary: 'Store a secret; the value comes from a prompt or a pipe',
  description:
    'Stores a value under a name. The command prompts for the value without showing it, or reads standard input; it takes no value as an argument, since other users could read it there. ' +
    'Functions keep the value that they were deployed with: `pie deploy` gives them the new one, `pie rollback` restores the old one.',
  arguments: [secretName],
  examples: [
    { line: 'pie secrets set OPENAI_KEY', does: 'prompts for the value' },
    { line: 'pie secrets set TLS_KEY < key.pem', does: 'reads the value from a file' },
  ],
  async run({ args: [name], terminal, signal, connect }) {
    const { client } = await connect();
    const value = await readHidden(`Value of ${name}`, signal);
    const secret = await client.secrets.set(name, value, { signal });
    terminal.value(secret);
    terminal.print(`Stored ${name}, revision ${secret.revision}.`);
    const outdatedFunctions = [
      ...new Set(secret.usedBy.filter((use) => use.revision !== secret.revision).map((use) => use.function)),
    ];
    if (outdatedFunctions.length > 0) {
      const outdatedText =
        outdatedFunctions.length === 1
          ? outdatedFunctions[0]
          : `${counted(outdatedFunctions.length, 'function')} (${outdatedFunctions.join(', ')})`;
      terminal.note(
        `${outdatedText} still ${outdatedFunctions.length === 1 ? 'has' : 'have'} an older value. To make it use this one: pie deploy.`,
      );
    }
    return EXIT.ok;
  },
});

export const secretsRemove = defineCommand({
  name: 'secrets remove',
  summary: 'Remove a secret that no served function uses',
  arguments: [secretName],
  examples: [
    { line: 'pie secrets remove OPENAI_KEY', does: 'removes it; older versions keep the value that they have' },
  ],
  async run({ args: [name], terminal, signal, connect }) {
    const { client } = await connect();
    await client.secrets.remove(name, { signal });
    terminal.value({ removed: name });
    terminal.print(`Removed ${name}.`);
    return EXIT.ok;
  },
});

export const webhooksSecret = defineCommand({
  name: 'webhooks secret',
  summary: 'Show the secret that signs this tenant’s webhooks',
  description:
    'Webhooks (`pie invoke --webhook URL`) are signed as in Standard Webhooks; its libraries verify them with this secret. Each tenant has one.',
  options: [{ flags: '--rotate', help: 'make a new secret, which signs every later delivery' }],
  examples: [
    { line: 'pie webhooks secret', does: 'prints whsec_…, which the receiver needs' },
    { line: 'pie webhooks secret --rotate', does: 'replaces a secret that has leaked' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const secret = await client.operations.webhookSecret({ signal, rotate: options.rotate });
    terminal.print(secret);
    terminal.value({ secret });
    return EXIT.ok;
  },
});
