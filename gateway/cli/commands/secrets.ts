import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { ago, counted } from '../format.ts';
import { readHidden } from '../hidden-input.ts';

const name = { name: 'name', help: 'name of the secret, such as OPENAI_KEY', required: true } as const;

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
  arguments: [name],
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
  arguments: [name],
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
