import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { INSTALLED } from '../paths.ts';
import { runProgram } from '../programs.ts';

export const bench = defineCommand({
  name: 'bench',
  summary: 'Measure the platform',
  arguments: [{ name: 'arguments', help: 'name of the benchmark, and its flags', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie bench http', does: 'measures tokens that streaming clients receive, and CPU of every process' },
    { line: 'pie bench generate', does: 'measures time per token at 1, 8 and 32 clients' },
    { line: 'pie bench launch', does: 'measures time from request to first message' },
    { line: 'pie bench admission', does: "measures another tenant's time beside a long queue, and CPU of Redis" },
    { line: 'pie bench flood', does: "measures another tenant's time to the first token beside a flood" },
    { line: 'pie bench scaling', does: 'compares three paced GPU hosts with one, for one tenant' },
    { line: 'pie bench idle', does: 'measures memory, CPU and wake-ups of the idle platform' },
    { line: 'pie bench soak', does: 'measures Redis memory while invocations arrive and expire' },
    { line: 'pie bench index', does: 'measures recall and time of searches in a vector index' },
    { line: 'pie bench engine', does: 'compares the engine with node-llama-cpp, transformers.js and the floor' },
    { line: 'pie bench agents', does: 'compares agents as programs with the same agents as client loops' },
    {
      line: 'pie bench all --quick',
      does: 'runs a few cases of every suite in less than 15 minutes and writes a report with images',
    },
    { line: 'pie bench generate --help', does: 'explains what a benchmark measures, and its baseline' },
  ],
  async run({ args }) {
    if (INSTALLED) {
      throw new Failure('Benchmarks need the clone.', {
        exitCode: EXIT.unreachable,
        code: 'missing-program',
        why: 'They belong to the tests, which the npm package does not contain.',
        advice: 'Run `npm run pie bench` in a clone of Pie.',
      });
    }
    return (await runProgram('test/bench/main.ts', args, 'inherit')).code;
  },
});
