import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { type Node, parse } from 'acorn';
import { build, type Plugin } from 'esbuild';
import type { Source } from '../component/source.ts';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
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

/** True for files of the project, false for packages and this repository's library. */
const isOwn = (path: string): boolean => !/[\\/]node_modules[\\/]|[\\/]functions[\\/]sdk[\\/]src[\\/]/.test(path);

/**
 * Makes an esbuild plugin that inserts checks around the conditions in the files of a project.
 * @param directory the project's folder; places are relative to it
 */
export function conditionChecks(directory: string): Plugin {
  return {
    name: 'condition-checks',
    setup(setup) {
      setup.onLoad({ filter: /\.[cm]?[jt]sx?$/ }, async ({ path }) => {
        if (!isOwn(path)) return undefined;
        // The bundler reports the faults of a file that does not compile.
        const compiled = await compile(path).catch(() => undefined);
        if (!compiled) return undefined;
        const map = new SourceMap(JSON.parse(compiled.map));
        const placeOf = (line: number, column: number) => {
          const entry = map.findEntry(line - 1, column);
          if (!('originalLine' in entry)) return relative(directory, path);
          return `${relative(directory, path)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
        };
        const checked = withChecks(compiled.code, placeOf);
        if (checked === undefined) return undefined;
        // The map describes the code without checks: lines in a stack trace are right, but columns behind a check are not.
        const inline = `\n//# sourceMappingURL=data:application/json;base64,${Buffer.from(compiled.map).toString('base64')}`;
        return { contents: checked + inline, loader: 'js', resolveDir: dirname(path) };
      });
    },
  };
}

/** Compiles one file to JavaScript, with its source map as JSON. esbuild reads the project's settings, such as those for JSX. */
async function compile(path: string): Promise<{ readonly code: string; readonly map: string }> {
  const { outputFiles } = await build({
    entryPoints: [path],
    outfile: join(dirname(path), 'compiled.js'),
    write: false,
    sourcemap: 'external',
    sourcesContent: false,
    logLevel: 'silent',
    // The parser cannot read decorators. ES2023 has none, so esbuild compiles them away.
    target: 'es2023',
    // `a ||= b` becomes `a || (a = b)`, whose left side can be checked.
    supported: { 'logical-assignment': false },
  });
  const output = (suffix: string) => outputFiles.find((file) => file.path.endsWith(suffix))?.text ?? '';
  return { code: output('.js'), map: output('.map') };
}

/** The module with checks around its conditions; undefined if it has no conditions, or the parser cannot read it. */
export function withChecks(code: string, placeOf: (line: number, column: number) => string): string | undefined {
  const looks: Look[] = [];
  try {
    visit(parse(code, { ecmaVersion: 'latest', sourceType: 'module', locations: true }), looks);
  } catch {
    return undefined;
  }
  if (looks.length === 0) return undefined;
  const edits = looks.flatMap((look, i) => editsOf(look, i, code, placeOf));
  edits.sort((a, b) => a.at - b.at || a.order - b.order);
  let checked = '';
  let from = 0;
  for (const { at, text, instead = 0 } of edits) {
    checked += code.slice(from, at) + text;
    from = at + instead;
  }
  // The import goes into the first line, so that line numbers stay. A shebang may stand only at the beginning, so it becomes a comment.
  const body = (checked + code.slice(from)).replace(/^#!/, '//');
  return `import { compared as ${COMPARED}, tested as ${TESTED} } from '@pie/inferlet/workflow'; ${body}`;
}

const TESTED = '__pieTested';
const COMPARED = '__pieCompared';

/** An expression whose value a condition looks at, or a comparison of two expressions. */
type Look =
  | { readonly whole: Node }
  | { readonly whole: Node; readonly left: Node; readonly right: Node; readonly operator: string };

interface Edit {
  readonly at: number;
  /** Order among the edits at one place. */
  readonly order: number;
  readonly text: string;
  /** Number of characters that the text replaces. */
  readonly instead?: number;
}

function editsOf(look: Look, i: number, code: string, placeOf: (line: number, column: number) => string): Edit[] {
  const { whole } = look;
  const quoted = ({ loc }: Node) => JSON.stringify(placeOf(loc?.start.line ?? 1, loc?.start.column ?? 0));
  // An outer expression has a smaller index `i` than an inner one. At the same place, it opens before the inner one and closes after it.
  const around = (open: string, close: string): Edit[] => [
    { at: whole.start, order: i + 1, text: open },
    { at: whole.end, order: -i - 1, text: close },
  ];
  if (!('operator' in look)) return around(`${TESTED}((`, `), ${quoted(whole)})`);
  const { left, right, operator } = look;
  return [
    ...around(`${COMPARED}((`, `), ${JSON.stringify(operator)}, ${quoted(left)}, ${quoted(right)})`),
    // Search for the operator: parentheses may close between `left.end` and it, because a node excludes those around it.
    { at: code.indexOf(operator, left.end), order: 0, text: '), (', instead: operator.length },
  ];
}

type Tree = Node & Readonly<Record<string, unknown>>;

const isNode = (value: unknown): value is Tree =>
  typeof value === 'object' && value !== null && typeof (value as { type?: unknown }).type === 'string';

/** Collects the expressions that conditions look at, outer ones before inner ones. */
function visit(node: Node, looks: Look[]): void {
  looks.push(...lookedAt(node as Tree));
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, looks);
  }
}

function lookedAt(node: Tree): Look[] {
  const part = (name: string): Look[] => (isNode(node[name]) ? [{ whole: node[name] }] : []);
  switch (node.type) {
    case 'IfStatement':
    case 'ConditionalExpression':
    case 'WhileStatement':
    case 'DoWhileStatement':
    case 'ForStatement':
    case 'SwitchCase':
      return part('test');
    case 'SwitchStatement':
      return part('discriminant');
    case 'LogicalExpression':
      // `value ?? other` asks whether there is a value.
      return node.operator === '??' ? [] : part('left');
    case 'UnaryExpression':
      return node.operator === '!' ? part('argument') : [];
    case 'BinaryExpression': {
      const { left, right, operator } = node;
      if (!isNode(left) || !isNode(right) || isAbsent(left) || isAbsent(right)) return [];
      return /^[!=]==?$/.test(String(operator)) ? [{ whole: node, left, right, operator: String(operator) }] : [];
    }
    default:
      return [];
  }
}

/** `null`, `undefined` or `void 0`: a comparison with these asks whether there is a value. */
const isAbsent = (node: Tree): boolean =>
  (node.type === 'Literal' && node.value === null) ||
  (node.type === 'Identifier' && node.name === 'undefined') ||
  (node.type === 'UnaryExpression' && node.operator === 'void');
