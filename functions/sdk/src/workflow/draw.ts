import { type Graph, type Input, type Kind, keyOf, type Node, needsOf, refsIn } from './graph.ts';

/** The graph as text: each component, and below it a line for each of its nodes, with the node's inputs. */
export function drawText(graph: Graph): string {
  const lines = [`${graph.name}: ${graph.nodes.length} nodes`];
  let module: string | undefined;
  const width = Math.max(0, ...graph.nodes.map(({ id }) => id.length));
  for (const node of graph.nodes) {
    if (node.module !== module) {
      module = node.module;
      const after = node.after.length > 0 ? ` (after ${node.after.join(', ')})` : '';
      lines.push(`${module}${after}`);
    }
    lines.push(`  ${node.id.padEnd(width)}  ${node.operation.kind.padEnd(18)}  ${inputsText(node)}`.trimEnd());
    if (node.operation.kind === 'loop') {
      lines.push(
        ...drawText(node.operation.body)
          .split('\n')
          .map((line) => `    ${line}`),
      );
    }
  }
  for (const [name, input] of Object.entries(graph.outputs)) lines.push(`result ${name}: ${inputText(input)}`);
  return lines.join('\n');
}

function inputsText({ inputs, when }: Node): string {
  const read = Object.entries(inputs).map(([name, input]) => `${name}: ${inputText(input)}`);
  const guards = when.map(({ test, is }) => `if ${keyOf(test)} is ${is}`);
  return [...read, ...guards].join('; ');
}

function inputText(input: Input): string {
  if ('from' in input) return keyOf(input.from);
  if ('list' in input) return `[${input.list.map(inputText).join(', ')}]`;
  const { value } = input;
  if (typeof value === 'string') return JSON.stringify(value.length > 24 ? `${value.slice(0, 23)}…` : value);
  if (Array.isArray(value)) return valuesText(value.length);
  return typeof value === 'object' ? 'a value' : String(value);
}

const valuesText = (count: number): string => (count === 1 ? '1 value' : `${count} values`);

const COLUMN = 230;
const ROW = 56;
const BOX = { width: 180, height: 36 };
const MARGIN = 20;
const HEADING = 28;

/** Fill of a node's box: blue for the language model, green for encoders, orange for functions of the program. */
const FILLS: Partial<Record<Kind, string>> = {
  prefilling: '#cfe3ff',
  'partial-prefilling': '#e4efff',
  decoding: '#b9d4ff',
  'partial-decoding': '#d6e6ff',
  select: '#b9d4ff',
  embedding: '#d3f2d0',
  reranking: '#d3f2d0',
  'tool-call': '#ffe3c2',
  searching: '#ffe3c2',
  ingestion: '#ffe3c2',
};

/** The graph as an SVG image: a node is drawn to the right of the nodes that it waits for. Several graphs are drawn below each other. */
export function drawSvg(graphs: readonly { readonly title: string; readonly graph: Graph }[]): string {
  const body: string[] = [];
  let [top, right] = [0, 0];
  for (const { title, graph } of graphs) {
    const drawn = drawGraph(title, graph, top);
    body.push(...drawn.body);
    top = drawn.bottom;
    right = Math.max(right, drawn.right);
  }
  const style = 'font-family="sans-serif" font-size="11"';
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${right}" height="${top}" viewBox="0 0 ${right} ${top}" ${style}>
<rect width="100%" height="100%" fill="#ffffff"/>
${body.join('\n')}
</svg>
`;
}

function drawGraph(title: string, graph: Graph, top: number): { body: string[]; bottom: number; right: number } {
  const columns = columnsOf(graph);
  const rows = new Map<number, number>();
  const places = new Map<string, { readonly x: number; readonly y: number }>();
  for (const { id } of graph.nodes) {
    const column = columns.get(id) ?? 0;
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    places.set(id, { x: MARGIN + column * COLUMN, y: top + HEADING + MARGIN + row * ROW });
  }
  const body = [`<text x="${MARGIN}" y="${top + HEADING}" font-size="15">${escaped(title)}</text>`];
  for (const node of graph.nodes) {
    const to = places.get(node.id);
    for (const id of new Set(needsOf(node).map((ref) => ref.node))) {
      const from = places.get(id);
      if (from && to) body.push(edge(from, to));
    }
  }
  for (const node of graph.nodes) body.push(box(node, places.get(node.id) ?? { x: 0, y: 0 }));
  const bottom = top + HEADING + 2 * MARGIN + Math.max(1, ...rows.values()) * ROW;
  return { body, bottom, right: 2 * MARGIN + Math.max(0, ...rows.keys()) * COLUMN + BOX.width };
}

/** The column of each node: right of all nodes whose values it needs, and of all nodes whose component must end first. */
function columnsOf(graph: Graph): ReadonlyMap<string, number> {
  const columns = new Map<string, number>();
  const ends = new Map<string, number>();
  for (const node of graph.nodes) {
    const before = [
      ...needsOf(node).map((ref) => columns.get(ref.node) ?? 0),
      ...node.after.map((module) => ends.get(module) ?? 0),
    ];
    const column = before.length === 0 ? 0 : Math.max(...before) + 1;
    columns.set(node.id, column);
    ends.set(node.module, Math.max(ends.get(node.module) ?? 0, column));
  }
  return columns;
}

function edge(
  from: { readonly x: number; readonly y: number },
  to: { readonly x: number; readonly y: number },
): string {
  const [x, y] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [endX, endY] = [to.x, to.y + BOX.height / 2];
  const middle = (x + endX) / 2;
  return `<path d="M${x} ${y} C${middle} ${y} ${middle} ${endY} ${endX} ${endY}" fill="none" stroke="#888888"/>`;
}

function box({ id, operation, inputs, when }: Node, { x, y }: { readonly x: number; readonly y: number }): string {
  const fill = FILLS[operation.kind] ?? '#eeeeee';
  const dashes = when.length > 0 ? ' stroke-dasharray="4 3"' : '';
  const reads = Object.values(inputs).flatMap((input) => refsIn(input)).length;
  return `<g><title>${escaped(`${operation.kind}, reads ${valuesText(reads)}`)}</title><rect x="${x}" y="${y}" width="${BOX.width}" height="${BOX.height}" rx="5" fill="${fill}" stroke="#555555"${dashes}/>
<text x="${x + 8}" y="${y + 15}" font-weight="bold">${escaped(operation.kind)}</text><text x="${x + 8}" y="${y + 29}">${escaped(shortened(id))}</text></g>`;
}

const shortened = (id: string): string => (id.length > 30 ? `…${id.slice(-29)}` : id);

const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (character) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[character] ?? '&quot;');
