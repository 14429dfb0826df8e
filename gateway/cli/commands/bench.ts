import type { Command } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { INSTALLED } from '../paths.ts';
import { runProgram } from '../programs.ts';

/** The benchmarks, with the options of their program. */
export const bench: Command = {
  name: 'bench',
  summary: 'Measure the platform',
  arguments: [{ name: 'arguments', help: 'which benchmark, and its flags', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie bench http', does: 'tokens that streaming clients receive, and the CPU of every process' },
    { line: 'pie bench generate', does: 'time per token at 1, 8 and 32 clients' },
    { line: 'pie bench launch', does: 'time from request to first message' },
    { line: 'pie bench admission', does: "another tenant's time beside a long line, jobs a second, CPU of Redis" },
    { line: 'pie bench flood', does: 'how long one tenant waits for its first token while another floods' },
    { line: 'pie bench idle', does: 'memory, CPU and wake-ups of the idle platform' },
    { line: 'pie bench soak', does: 'Redis memory while invocations come and are forgotten' },
    { line: 'pie bench generate --help', does: 'what a benchmark measures, against which baseline' },
    { line: 'pie bench engine', does: 'the engine against node-llama-cpp, transformers.js and the floor' },
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
