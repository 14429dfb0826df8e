import type { Command } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { INSTALLED } from '../paths.ts';
import { runProgram } from '../programs.ts';

/** The benchmarks, with the options of their program. */
export const bench: Command = {
  name: 'bench',
  summary: 'Measure the platform',
  arguments: [{ name: 'arguments', help: 'name of the benchmark, and its flags', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie bench http', does: 'measures tokens that streaming clients receive, and CPU of every process' },
    { line: 'pie bench generate', does: 'measures time per token at 1, 8 and 32 clients' },
    { line: 'pie bench launch', does: 'measures time from request to first message' },
    { line: 'pie bench admission', does: 'measures waits behind a long queue, jobs a second, and CPU of Redis' },
    { line: 'pie bench flood', does: 'measures how long one tenant waits while another floods the platform' },
    { line: 'pie bench soak', does: 'measures Redis memory while invocations arrive and expire' },
    {
      line: 'pie bench engine',
      does: 'compares the engine with node-llama-cpp, transformers.js and the machine’s limit',
    },
  ],
  async run({ args }) {
    if (INSTALLED) {
      throw new Failure('Benchmarks need the clone.', {
        exitCode: EXIT.unreachable,
        code: 'missing-program',
        why: 'They belong to the tests, which the package does not hold.',
        advice: 'Run `npm run pie bench` in a clone of Pie.',
      });
    }
    return (await runProgram('test/bench/main.ts', args, 'inherit')).code;
  },
};
