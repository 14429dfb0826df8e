import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { counted } from '../format.ts';

export const quarantineLift = defineCommand({
  name: 'quarantine lift',
  summary: 'Let a quarantined function run again',
  description:
    'A version is quarantined when its sandbox crashed or stopped answering twice within ten minutes while no other version computed in it. A quarantined version does not run. ' +
    'The command lifts the quarantine of all versions of the function; `pie list` shows quarantined functions. A new version is not quarantined.',
  arguments: [{ name: 'function', help: 'name of the function', required: true }],
  examples: [{ line: 'pie quarantine lift story', does: 'lets story run again' }],
  async run({ args: [fn], terminal, signal, connect }) {
    const { client } = await connect();
    const lifted = await client.liftQuarantine(fn, { signal });
    terminal.value({ function: fn, lifted });
    terminal.print(
      lifted.length === 0
        ? `No version of ${fn} is quarantined.`
        : `Lifted the quarantine of ${counted(lifted.length, 'version')} of ${fn}: ${lifted.join(', ')}.`,
    );
    return EXIT.ok;
  },
});
