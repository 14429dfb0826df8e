import type { Tenant, TenantChange } from '../../app/resources/tenants.ts';
import { type Call, defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago } from '../format.ts';
import { latency, targetsText } from '../latency.ts';
import type { Terminal } from '../terminal.ts';
import { wholeNumber } from '../whole-number.ts';

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
