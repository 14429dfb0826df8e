import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';

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
