import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { runProgram } from '../programs.ts';

/** The supervisor's exit code for a wrong command line. */
const WRONG_USAGE = 2;

export const up = defineCommand({
  name: 'up',
  summary: 'Start the platform on this machine',
  description:
    'Starts Redis, GPU host, runtime and gateway under one supervisor, and serves until Ctrl-C. `pie up --help` shows its flags.',
  arguments: [{ name: 'flags', help: 'flags of the supervisor', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie up', does: 'starts it with the defaults' },
    { line: 'PIE_HOME=/srv/pie PIE_PORT=9000 pie up', does: 'starts a second one with its own home and port' },
  ],
  run: async ({ args }) => {
    const { code } = await runProgram('infra/up.ts', args, 'inherit');
    return code === WRONG_USAGE ? EXIT.usage : code;
  },
});
