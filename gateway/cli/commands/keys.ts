import { SCOPES, type Scope } from '#scheduler/tenants/rules.ts';
import type { CreatedKey } from '../../app/resources/tenants.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, duration } from '../format.ts';
import { parseSpan } from '../span.ts';
import type { Terminal } from '../terminal.ts';

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
