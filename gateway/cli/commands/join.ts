import { defineCommand } from '../command.ts';
import { Failure } from '../failure.ts';
import { home } from '../paths.ts';
import { runProgram } from '../programs.ts';

export const join = defineCommand({
  name: 'join',
  summary: 'Add this machine to a platform, and start it',
  description:
    'Exchanges a token of `pie machines token` for the settings of the machine: its own Redis user, the platform’s settings and, unless it runs only GPU hosts, the master key. Writes them and a certificate into the home (PIE_HOME), which must be new. `pie up` starts the machine again later.',
  arguments: [
    { name: 'url', help: 'address of a gateway of the platform, such as http://10.0.0.1:8787', required: true },
  ],
  options: [
    { flags: '--token <token>', help: 'token that an operator has made' },
    { flags: '--name <name>', help: 'name of this machine (default: PIE_MACHINE, else the host’s name)' },
    {
      flags: '--role <roles>',
      help: 'what it runs: gateway, runtime, gpu-host, separated by commas (default: PIE_ROLES, else all)',
    },
    {
      flags: '--address <host>',
      help: 'where other machines reach it (default: PIE_ADDRESS, else the address that reaches the gateway)',
    },
    { flags: '--no-start', help: 'only write the home' },
  ],
  examples: [
    { line: 'pie join http://10.0.0.1:8787 --token pie-join.…', does: 'joins with all roles and starts' },
    {
      line: 'pie join http://10.0.0.1:8787 --token pie-join.… --name gpu-1 --role gpu-host',
      does: 'joins as a machine with GPU hosts only',
    },
  ],
  async run({ args: [url], options, terminal, signal }) {
    const { token, name, role, address } = options;
    if (token === undefined)
      throw new Failure('The token is missing.', {
        advice: 'Create one with `pie machines token` on a machine of the platform.',
      });
    // The packages of this module take longer to load than a short command runs.
    const { joinPlatform } = await import('../join.ts');
    const joined = await joinPlatform({ url, token, home: home(), name, role, address }, signal);
    terminal.value(joined);
    terminal.print(
      `Joined as ${joined.machine} (${joined.roles.join(', ')}); other machines reach it at ${joined.address}.`,
    );
    if (!options.start) return 0;
    return (await runProgram('infra/up.ts', terminal.json ? ['--json'] : [], 'inherit')).code;
  },
});
