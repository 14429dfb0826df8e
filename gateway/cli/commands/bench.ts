import type { Command } from '../command.ts';
import { runProgram } from '../programs.ts';

/** The benchmarks, as their program has them. */
export const bench: Command = {
  name: 'bench',
  summary: 'Measure the platform',
  arguments: [{ name: 'arguments', help: 'which benchmark, and its flags', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie bench generate', does: 'time per token at 1, 8 and 32 clients' },
    { line: 'pie bench launch', does: 'time from request to first message' },
    { line: 'pie bench engine', does: 'the engine against node-llama-cpp, transformers.js and the floor' },
  ],
  run: async ({ args }) => (await runProgram('test/bench/main.ts', args, 'inherit')).code,
};
