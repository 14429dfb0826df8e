import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { drawGraph } from '../builder.ts';
import { defineCommand } from '../command.ts';
import { exampleInput } from '../example-input.ts';
import { Failure } from '../failure.ts';
import { findFunction } from '../function-source.ts';
import { readInput } from './input.ts';

export const graph = defineCommand({
  name: 'graph',
  summary: 'Draw the graph of a workflow before and after its passes',
  description:
    'Makes the graph of a workflow (@pie/inferlet/workflow) for an input, on this machine and without a platform, and draws it as text and as ' +
    "an SVG file. The source exports the workflow beside 'run'.",
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, or a .ts or .js file (default: the current folder)',
      required: false,
    },
  ],
  options: [
    {
      flags: '-i, --input <json>',
      help: 'input: JSON, @file, or - for standard input (default: the example of pie.json)',
    },
    { flags: '-o, --out <file>', help: "file to write (default: the function's name with .svg)" },
  ],
  examples: [
    { line: 'pie graph functions/document-qa', does: 'draws the graph for the example of its pie.json' },
    { line: 'pie graph app.ts --input @input.json -o app.svg', does: 'draws the graph for an input' },
  ],
  async run({ args: [target = '.'], options, terminal }) {
    const source = findFunction(target, undefined);
    if (source.kind === 'component') {
      throw new Failure(`${target} is a component.`, {
        advice: 'Name its source file or folder: `pie graph` reads the source.',
      });
    }
    const input = options.input === undefined ? exampleInput(source.manifest) : readInput(options.input);
    const outFile = path.resolve(options.out ?? `${source.manifest.name}.svg`);
    const scratch = mkdtempSync(path.join(os.tmpdir(), 'pie-graph-'));
    try {
      const file = path.join(scratch, 'input.json');
      writeFileSync(file, JSON.stringify(input));
      const { before, after } = await drawGraph(source.entry, outFile, file);
      const shownPath = path.relative(process.cwd(), outFile);
      terminal.print(`${before}\n\nafter the passes\n\n${after}\n\n${shownPath}`);
      terminal.value({ before, after, file: outFile });
      return 0;
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  },
});
