import { readFile } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { dirname, extname, relative } from 'node:path';
import { type Node, parse } from 'acorn';
import { type Plugin, transform } from 'esbuild';

/** Files of the project: neither packages nor this repository's library. */
const isOwn = (path: string): boolean => !/[\\/]node_modules[\\/]|[\\/]functions[\\/]sdk[\\/]src[\\/]/.test(path);

/**
 * Puts the library's `tested` around what each condition of the project's files looks at, with its place: JavaScript itself asks no object
 * whether it is true, or equal to another value.
 * @param directory the project, which places are relative to
 */
export function conditionChecks(directory: string): Plugin {
  return {
    name: 'condition-checks',
    setup(setup) {
      setup.onLoad({ filter: /\.[cm]?[jt]s$/ }, async ({ path }) => {
        if (!isOwn(path)) return undefined;
        const loader = extname(path).endsWith('ts') ? 'ts' : 'js';
        const text = await readFile(path, 'utf8');
        const options = { loader, sourcemap: 'external', sourcefile: path, sourcesContent: false } as const;
        // The bundler reports the faults of a file that does not compile.
        const compiled = await transform(text, options).catch(() => undefined);
        if (!compiled) return undefined;
        const map = new SourceMap(JSON.parse(compiled.map));
        const placeOf = (line: number, column: number) => {
          const entry = map.findEntry(line - 1, column);
          if (!('originalLine' in entry)) return relative(directory, path);
          return `${relative(directory, path)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
        };
        const checked = withChecks(compiled.code, placeOf);
        if (checked === undefined) return undefined;
        // Columns are those before the checks went in.
        const inline = `\n//# sourceMappingURL=data:application/json;base64,${Buffer.from(compiled.map).toString('base64')}`;
        return { contents: checked + inline, loader: 'js', resolveDir: dirname(path) };
      });
    },
  };
}

/** The module with its conditions checked; undefined if it has none, or is not what the parser reads. */
export function withChecks(code: string, placeOf: (line: number, column: number) => string): string | undefined {
  const found: Node[] = [];
  try {
    visit(parse(code, { ecmaVersion: 'latest', sourceType: 'module', locations: true }), found);
  } catch {
    return undefined;
  }
  if (found.length === 0) return undefined;
  const edits = found.flatMap((node, i) => {
    const { line = 1, column = 0 } = node.loc?.start ?? {};
    const close = `), ${JSON.stringify(placeOf(line, column))})`;
    // An outer expression opens before an inner one at the same place, and closes after it.
    return [
      { at: node.start, order: i + 1, text: `${TESTED}((` },
      { at: node.end, order: -i - 1, text: close },
    ];
  });
  edits.sort((a, b) => a.at - b.at || a.order - b.order);
  let [checked, from] = ['', 0];
  for (const { at, text } of edits) {
    checked += code.slice(from, at) + text;
    from = at;
  }
  // On the first line, so that lines stay.
  return `import { tested as ${TESTED} } from '@pie/inferlet/workflow'; ${checked}${code.slice(from)}`;
}

const TESTED = '__pieTested';

type Tree = Node & Readonly<Record<string, unknown>>;

const isNode = (value: unknown): value is Tree =>
  typeof value === 'object' && value !== null && typeof (value as { type?: unknown }).type === 'string';

/** Collects what conditions look at, the outer before the inner. */
function visit(node: Node, found: Node[]): void {
  found.push(...lookedAt(node as Tree));
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, found);
  }
}

function lookedAt(node: Tree): Node[] {
  const parts = (...names: readonly string[]) => names.map((name) => node[name]).filter(isNode);
  switch (node.type) {
    case 'IfStatement':
    case 'ConditionalExpression':
    case 'WhileStatement':
    case 'DoWhileStatement':
    case 'ForStatement':
    case 'SwitchCase':
      return parts('test');
    case 'SwitchStatement':
      return parts('discriminant');
    case 'LogicalExpression':
      // `value ?? other` asks whether there is a value.
      return node.operator === '??' ? [] : parts('left');
    case 'UnaryExpression':
      return node.operator === '!' ? parts('argument') : [];
    case 'BinaryExpression': {
      const sides = parts('left', 'right');
      return /^[!=]==?$/.test(String(node.operator)) && !sides.some(isAbsent) ? sides : [];
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
