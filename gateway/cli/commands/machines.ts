import type { Command } from '../command.ts';
import { EXIT } from '../failure.ts';
import { ago } from '../format.ts';

export const machinesList: Command = {
  name: 'machines list',
  summary: 'List the machines of the platform (operators)',
  description:
    'Shows the machines that share this platform’s Redis: what each runs, and whether its supervisor is there. A machine that was stopped leaves the list; one that died stays as "gone" for an hour, or until it returns.',
  byDefault: true,
  examples: [
    { line: 'pie machines', does: 'lists them' },
    { line: 'pie machines --json', does: 'prints one JSON object a line' },
  ],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const { machines } = await client.operations.load({ signal });
    for (const machine of machines) terminal.value(machine);
    terminal.table(
      ['MACHINE', 'STATE', 'ROLES', 'HOST', 'VERSION', 'STARTED'],
      machines.map(({ name, alive, roles, host, version, startedAt }) => [
        ...[name, alive ? 'there' : 'gone', roles.join(', '), host, version, ago(startedAt)],
      ]),
      'No machine is registered: this gateway runs without a supervisor (`pie up`).',
    );
    return EXIT.ok;
  },
};

export const machinesRemove: Command = {
  name: 'machines remove',
  summary: 'Remove a machine for good (operators)',
  description:
    'Its supervisor stops it, other machines end their links to it within seconds, and a start with its certificate is refused. To let it join again, delete machine.pem in its home.',
  arguments: [{ name: 'machine', help: 'name of the machine, as `pie machines` shows it', required: true }],
  examples: [{ line: 'pie machines remove east-1', does: 'removes the machine east-1' }],
  async run({ args: [machine = ''], terminal, signal, connect }) {
    const { client } = await connect();
    await client.operations.removeMachine(machine, { signal });
    terminal.value({ removed: machine });
    terminal.print(`Removed ${machine}.`);
    return EXIT.ok;
  },
};
