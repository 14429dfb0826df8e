import type { Command } from '../command.ts';
import { EXIT } from '../failure.ts';

export const webhooksSecret: Command = {
  name: 'webhooks secret',
  summary: 'Show the secret that signs this tenant’s webhooks',
  description:
    'Webhooks (`pie invoke --webhook URL`) are signed as Standard Webhooks has it; its libraries check them with this secret. Each tenant has one.',
  options: [{ flags: '--rotate', help: 'make a new one; every attempt from now on is signed with it' }],
  examples: [
    { line: 'pie webhooks secret', does: 'whsec_…, for the receiver' },
    { line: 'pie webhooks secret --rotate', does: 'when somebody has seen it who should not' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client } = await connect();
    const secret = await client.operations.webhookSecret({ signal, rotate: options.rotate === true });
    terminal.print(secret);
    terminal.value({ secret });
    return EXIT.ok;
  },
};
