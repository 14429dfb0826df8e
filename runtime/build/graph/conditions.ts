import { SourceMap } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { type Node, parse } from 'acorn';
import { build, type Plugin } from 'esbuild';

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
