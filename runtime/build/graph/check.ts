import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve, sep } from 'node:path';
import type { Source } from '../component/source.ts';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import { conditionChecks } from './conditions.ts';
import { evaluate } from './evaluate.ts';

/** Result of the evaluation for one workflow or program. */
interface Traced {
  readonly name: string;
  readonly isProgram: boolean;
  readonly nodes?: number;
  readonly plans?: number;
  /** Reason why there is no graph; `looks` is true when the program looked at a value that does not exist yet. */
  readonly fault?: { readonly text: string; readonly looks: boolean };
  readonly planFaults: readonly string[];
}

/**
 * Traces the programs of a source for the example of its manifest.
 * @returns notes for the developer: which programs are traced, and which will be interpreted, and why
 * @throws BuildError if a condition looks at a value that may not exist yet
 */
export async function checkWorkflows(source: Source): Promise<string[]> {
  const scratch = await mkdtemp(join(tmpdir(), 'pie-check-'));
  try {
    const inputFile = join(scratch, 'input.json');
    const example = await exampleOf(source);
    await writeFile(inputFile, JSON.stringify(example ?? {}));
    const plugins = [conditionChecks(source.directory)];
    const entry = entryText(source.entry);
    const printed = await evaluate(source, { entry, inputFile, scratch, plugins }).catch((error: unknown) => {
      if (!(error instanceof BuildError)) throw error;
      return error;
    });
    // A note is enough here: the compiler reports a module that fails while it loads.
    if (printed instanceof BuildError) return [`The workflows could not be traced at the build. ${printed.message}`];
    const { traced, undecided } = JSON.parse(printed) as {
      traced: Traced[];
      undecided: [place: string, hint: string][];
    };
    if (undecided.length > 0) throw await refusalOf(source, undecided);
    const notes = traced.flatMap((each) => notesOf(each, example !== undefined));
    return notes.map((note) => note.replaceAll(`${source.directory}${sep}`, ''));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function exampleOf({ directory }: Source): Promise<unknown> {
  try {
    const manifest = JSON.parse(await readFile(join(directory, 'pie.json'), 'utf8'));
    return (manifest as { input?: { examples?: readonly unknown[] } }).input?.examples?.[0];
  } catch {
    // A single file has no manifest. The faults of a manifest are reported where it is read.
    return undefined;
  }
}

/** The text of the module that `evaluate` runs. The module makes the graph of each workflow and program of the source, and reports the results. */
const entryText = (entry: string): string => `
import { readFileSync } from 'node:fs';
import { Untraceable, undecided } from '@pie/inferlet/workflow';
import ${JSON.stringify(entry)};
const input = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const traced = [];
for (const { name, isProgram, plans, graph } of globalThis[Symbol.for('pie.workflows')]) {
  const told = { name, isProgram, plans: plans?.count, planFaults: plans?.faults ?? [] };
  try {
    traced.push({ ...told, nodes: (await graph(input)).nodes.length });
  } catch (thrown) {
    traced.push({ ...told, fault: { text: String(thrown?.message ?? thrown), looks: thrown instanceof Untraceable } });
  }
}
__pieTold({ traced, undecided: [...undecided] });
`;

function notesOf({ name, isProgram, nodes, plans, fault, planFaults }: Traced, hasExample: boolean): string[] {
  const subject = `${isProgram ? 'program' : 'workflow'} "${name}"`;
  const notes = planFaults.map(
    (text) => `A plan of the ${subject} cannot be made at the build; each run makes it. ${text}`,
  );
  if (fault?.looks) notes.push(`The ${subject} cannot be traced and will be interpreted. ${fault.text}`);
  else if (fault && hasExample) notes.push(`The ${subject} has no graph for the example of pie.json. ${fault.text}`);
  else if (fault && isProgram) {
    notes.push(`The ${subject} was not traced, because pie.json has no example of its input. ${fault.text}`);
  } else if (nodes !== undefined && plans) {
    notes.push(
      `The ${subject} is traced: ${nodes} nodes, ${plans === 1 ? '1 plan' : `${plans} plans`} in the artifact.`,
    );
  }
  return notes;
}

async function refusalOf(
  { directory }: Source,
  undecided: readonly [place: string, hint: string][],
): Promise<BuildError> {
  const text = 'This condition looks at a value that may not exist yet.';
  const diagnostics = await Promise.all(
    undecided.map(async ([place]): Promise<Diagnostic> => {
      const [, file = '', line = '1', column = '1'] = /^(.*?):(\d+):(\d+)$/.exec(place) ?? [];
      const lines = (await readFile(resolve(directory, file), 'utf8').catch(() => '')).split('\n');
      return { file, line: Number(line), column: Number(column), text, source: lines[Number(line) - 1] ?? '' };
    }),
  );
  const [[place, hint] = ['', '']] = undecided;
  return new BuildError('build-failed', `The source cannot be traced: ${place}: ${text}`, hint, diagnostics);
}
