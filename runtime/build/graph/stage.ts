import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findSource } from '../component/source.ts';
import { evaluate } from './evaluate.ts';

export interface GraphStageResult {
  readonly ok: true;
  /** The graph before and after the passes, as text. */
  readonly before: string;
  readonly after: string;
  readonly summary: string;
}

/**
 * The `graph` command: makes the graph of a source's workflow for an input, and draws it before and after the passes into an SVG file.
 * @param inputFile a file with the input, JSON
 * @throws BuildError
 */
export async function runGraphStage(
  input: string,
  output: string,
  inputFile: string | undefined,
): Promise<GraphStageResult> {
  const source = await findSource(input);
  const scratch = await mkdtemp(join(tmpdir(), 'pie-graph-'));
  try {
    const inputPath = inputFile ?? join(scratch, 'input.json');
    if (inputFile === undefined) await writeFile(inputPath, '{}');
    const printed = await evaluate(source, { entry: entryText(source.entry), inputFile: inputPath, scratch });
    const { before, after, svg } = JSON.parse(printed) as { before: string; after: string; svg: string };
    await writeFile(output, svg);
    return { ok: true, before, after, summary: `${before}\n\n${after}\n\n${output}` };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Finds the workflow among the exports of the source, and reports its drawings. */
const entryText = (entry: string): string => `
import { readFileSync } from 'node:fs';
import { drawSvg, drawText, optimise, PASSES } from '@pie/inferlet/workflow';
import * as source from ${JSON.stringify(entry)};
const found = Object.values(source).find((value) => typeof value?.graph === 'function' && typeof value.name === 'string');
if (!found) throw new Error('The source exports no workflow: write "export const app = workflow(…)", or program(…).');
const graph = await found.graph(JSON.parse(readFileSync(process.argv[2], 'utf8')));
const optimised = optimise(graph, PASSES);
const svg = drawSvg([{ title: graph.name, graph }, { title: graph.name + ' after the passes', graph: optimised }]);
__pieTold({ before: drawText(graph), after: drawText(optimised), svg });
`;
