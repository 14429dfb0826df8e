import { SCOPES, type Scope } from '#scheduler/tenants/scopes.ts';
import type { CreatedKey } from '../../app/control/tenants.ts';
import { type Command, type Option, text } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, duration } from '../format.ts';
import { parseSpan } from '../span.ts';
import type { Terminal } from '../terminal.ts';

const tenant: Option = { flags: '--tenant <name>', help: 'another tenant than that of your key; for operators' };
const id = { name: 'key', help: 'id of the key, such as key_3f9ac41e07b2', required: true } as const;

const HOUR_MS = 3_600_000;

export const keysList: Command = {
  name: 'keys list',
  summary: 'List the API keys',
  options: [tenant],
  examples: [
    { line: 'pie keys list', does: 'what each may do, when it was used last, when it expires' },
    { line: 'pie keys list --tenant acme', does: 'those of another tenant' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const keys = await client.tenants.keys(text(options, 'tenant'), { signal });
    terminal.value(keys);
    terminal.table(
      ['ID', 'NAME', 'SCOPES', 'CREATED', 'LAST USED', 'EXPIRES'],
      keys.map((key) => [
        key.id,
        key.name,
        key.scopes.join(','),
        ago(key.createdAt),
        key.lastUsedAt === null ? 'never' : ago(key.lastUsedAt),
        key.expiresAt === null ? 'never' : ahead(key.expiresAt),
      ]),
      'There are none.',
    );
    return EXIT.ok;
  },
};

export const keysCreate: Command = {
  name: 'keys create',
  summary: 'Create an API key; it is shown once',
  arguments: [{ name: 'name', help: 'what it is called, for people', required: true }],
  options: [
    {
      flags: '--scopes <list>',
      help: 'what it may do: invoke, deploy, admin, operator; invoke without it',
      parse: scopes,
    },
    {
      flags: '--expires <span>',
      help: 'until when it works, such as 12h or 30d; for ever without it',
      parse: parseSpan,
    },
    tenant,
  ],
  examples: [
    { line: 'pie keys create website', does: 'may invoke functions' },
    { line: 'pie keys create ci --scopes invoke,deploy --expires 90d', does: 'deploys for three months' },
    { line: 'pie keys create first --tenant acme --scopes admin', does: 'lets another tenant begin' },
  ],
  async run({ args: [name = ''], options, terminal, signal, connect }) {
    const { client, credentials } = await connect();
    const span = options.expires as number | undefined;
    const wanted = {
      name,
      scopes: (options.scopes as Scope[] | undefined) ?? ['invoke' as const],
      ...(span !== undefined && { expiresAt: new Date(Date.now() + span).toISOString() }),
    };
    const key = await client.tenants.createKey(wanted, text(options, 'tenant'), { signal });
    show(terminal, key, credentials.url);
    return EXIT.ok;
  },
};

export const keysRotate: Command = {
  name: 'keys rotate',
  summary: 'Replace an API key; the old one works on for a while',
  description:
    'Makes a key with the same name, scopes and expiry. The old one is refused once the grace period is over; give it out before that.',
  arguments: [id],
  options: [
    {
      flags: '--grace <span>',
      help: 'how long the old one works on, such as 0s or 1d; 1h without it',
      parse: parseSpan,
    },
    tenant,
  ],
  examples: [{ line: 'pie keys rotate key_3f9ac41e07b2 --grace 1d', does: 'a day to put the next one in its place' }],
  async run({ args: [key = ''], options, terminal, signal, connect }) {
    const { client, credentials } = await connect();
    const graceMs = (options.grace as number | undefined) ?? HOUR_MS;
    const next = await client.tenants.rotateKey(key, graceMs, text(options, 'tenant'), { signal });
    show(terminal, next, credentials.url);
    terminal.note(graceMs === 0 ? `${key} is refused from now on.` : `${key} works for another ${duration(graceMs)}.`);
    return EXIT.ok;
  },
};

export const keysRemove: Command = {
  name: 'keys remove',
  summary: 'Remove an API key; it is refused within 2 s',
  arguments: [id],
  options: [tenant],
  examples: [{ line: 'pie keys remove key_3f9ac41e07b2', does: 'the last key that administers a tenant stays' }],
  async run({ args: [key = ''], options, terminal, signal, connect }) {
    const { client } = await connect();
    await client.tenants.removeKey(key, text(options, 'tenant'), { signal });
    terminal.value({ removed: key });
    terminal.print(`Removed ${key}.`);
    return EXIT.ok;
  },
};

/** Prints the key alone as the result, for scripts; remarks go to standard error. */
function show(terminal: Terminal, key: CreatedKey, url: string): void {
  terminal.value(key);
  terminal.note(`${key.id} of ${key.tenant} may ${key.scopes.join(', ')}. It is shown this once:`);
  terminal.print(key.apiKey);
  terminal.note(`Use it: PIE_URL=${url} PIE_API_KEY=… pie list, or the header Authorization: Bearer …`);
}

function scopes(list: string): Scope[] {
  return list.split(',').map((word) => {
    const scope = SCOPES.find((known) => known === word.trim());
    if (scope === undefined) throw new Failure(`"${word}" is no scope: there are ${SCOPES.join(', ')}.`);
    return scope;
  });
}

function ahead(time: string): string {
  const left = Date.parse(time) - Date.now();
  if (left <= 0) return `${ago(time)} (expired)`;
  return left < 172_800_000 ? `in ${duration(left)}` : `in ${Math.floor(left / 86_400_000)} d`;
}
