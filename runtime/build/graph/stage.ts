import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findSource } from '../component/source.ts';
import { evaluate } from './evaluate.ts';

export interface GraphStageResult {
  readonly ok: true;
  /** Text of the graph before the optimisation passes. */
  readonly before: string;
  /** Text of the graph after the optimisation passes. */
  readonly after: string;
  /** Both texts and the path of the SVG file: what the command prints without `--json`. */
  readonly summary: string;
}

/**
 * The `graph` command: makes the graph of the workflow in a source file or project folder, and draws it before and after the optimisation
 * passes into an SVG file.
 * @param inputFile a JSON file with the workflow's input; without it, the input is `{}`
 * @throws BuildError
 */
export async function runGraphStage(
  sourcePath: string,
  svgPath: string,
  inputFile: string | undefined,
): Promise<GraphStageResult> {
  const source = await findSource(sourcePath);
  const scratch = await mkdtemp(join(tmpdir(), 'pie-graph-'));
  try {
    const inputPath = inputFile ?? join(scratch, 'input.json');
    if (inputFile === undefined) await writeFile(inputPath, '{}');
    const resultJson = await evaluate(source, { entry: entryText(source.entry), inputFile: inputPath, scratch });
    const { before, after, svg } = JSON.parse(resultJson) as { before: string; after: string; svg: string };
    await writeFile(svgPath, svg);
    return { ok: true, before, after, summary: `${before}\n\n${after}\n\n${svgPath}` };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** The text of the module that `evaluate` runs. The module finds a workflow or program among the exports of `entry`, and reports its drawings. */
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
