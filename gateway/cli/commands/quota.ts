import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { DEFAULT_SCHEDULES } from '#scheduler/schedules/rules.ts';
import { quotaAmount } from '../../app/amounts.ts';
import type { QuotaStatus } from '../../app/resources/quotas.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { duration, number } from '../format.ts';
import { parseSpan } from '../span.ts';

const tenant = { flags: '--tenant <tenant>', help: 'another tenant (operators)' } as const;
/** Width of the bar that shows the used part of a limit. */
const BAR_CELLS = 20;

export const quotaList = defineCommand({
  name: 'quota list',
  byDefault: true,
  summary: 'Show limits and how much of each is used',
  description: 'Windows begin with the minute, day and month in UTC. Quotas without a limit are not listed.',
  options: [
    tenant,
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
    tenant,
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
