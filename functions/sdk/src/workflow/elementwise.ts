import { type Graph, type Input, keyOf, type Node, newId, type Ref, refsIn, resultsOf, type Type } from './graph.ts';

/** Types whose values are lists. The joined lists of a node's stages are the node's list. */
const LISTS: ReadonlySet<Type> = new Set<Type>(['texts', 'vectors', 'numbers', 'list']);

/** One stage of a node: its elements, as the input of the node's elementwise port. */
export interface Stage {
  readonly elements: Input;
  /**
   * True when the elements exist before the module that makes them has ended. The stage then does not wait for the modules in `after`, unless the
   * node is `ordered`.
   */
  readonly early: boolean;
}

/**
 * Splits nodes that treat their elements one by one into stages. Nodes that read the elements of a split node one by one are split in the same
 * way. For all other readers, an aggregate with the node's own id joins the stages.
 *
 * @param stagesOf the stages of a node whose elements come from no split node; undefined leaves the node whole
 */
export function splitNodes(
  graph: Graph,
  stagesOf: (node: Node, elements: Input) => readonly Stage[] | undefined,
): Graph {
  /** Maps the key of a split node's output to the outputs of its stages. Their lists, joined in this order, are the node's output. */
  const staged = new Map<string, { readonly refs: readonly Ref[]; readonly early: boolean }>();
  const joins = new Set<string>();
  const used = new Set(graph.nodes.map(({ id }) => id));
  const nodes: Node[] = [];
  for (const node of graph.nodes) {
    const stages = stagesFor(node, staged, stagesOf);
    if (!stages || stages.length < 2 || !Object.values(node.outputs).every((type) => LISTS.has(type))) {
      nodes.push(node);
      continue;
    }
    const port = node.each?.port as string;
    const ids = stages.map((_, i) => newId(`${node.id}[${i}]`, used));
    for (const [i, { elements, early }] of stages.entries()) {
      const inputs = { ...node.inputs, [port]: elements };
      nodes.push({ ...node, id: ids[i] as string, inputs, after: early && !node.ordered ? [] : node.after });
    }
    for (const [name, type] of Object.entries(node.outputs)) {
      const refs = ids.map((id) => ({ node: id, port: name, type }));
      staged.set(keyOf({ node: node.id, port: name }), { refs, early: stages.some(({ early }) => early) });
    }
    nodes.push(joinOf(node, ids));
    joins.add(node.id);
  }
  return { ...graph, nodes: withoutUnread(nodes, joins, graph) };
}

function stagesFor(
  node: Node,
  staged: ReadonlyMap<string, { readonly refs: readonly Ref[]; readonly early: boolean }>,
  stagesOf: (node: Node, elements: Input) => readonly Stage[] | undefined,
): readonly Stage[] | undefined {
  const elements = node.each && node.inputs[node.each.port];
  if (!elements) return undefined;
  const source = 'from' in elements ? staged.get(keyOf(elements.from)) : undefined;
  return source ? source.refs.map((from) => ({ elements: { from }, early: source.early })) : stagesOf(node, elements);
}

/** The node that joins the stages of a node under its id. */
function joinOf({ id, module, outputs, after, ordered, when }: Node, ids: readonly string[]): Node {
  const names = Object.keys(outputs);
  const inputs = Object.fromEntries(
    Object.entries(outputs).map(([port, type]) => [
      port,
      { list: ids.map((node) => ({ from: { node, port, type } })) },
    ]),
  );
  const call = (lists: Readonly<Record<string, readonly (readonly unknown[])[]>>) => {
    const [only] = names.map((name) => (lists[name] ?? []).flat());
    return names.length === 1 ? only : Object.fromEntries(names.map((name) => [name, (lists[name] ?? []).flat()]));
  };
  const operation = { kind: 'aggregate', name: 'concat', call } as const;
  return { id, module, outputs, after, ...(ordered && { ordered }), when, operation, inputs, retries: 0 };
}

/** Leaves out the joins that have no reader. */
function withoutUnread(nodes: readonly Node[], joins: ReadonlySet<string>, graph: Graph): Node[] {
  const read = new Set(resultsOf(graph).map((ref) => ref.node));
  for (const { inputs } of nodes)
    for (const input of Object.values(inputs)) for (const ref of refsIn(input)) read.add(ref.node);
  return nodes.filter(({ id }) => !joins.has(id) || read.has(id));
}

/** Number of elements; undefined when only a run of the graph gives the list. */
export function countOf(elements: Input | undefined): number | undefined {
  if (!elements || 'from' in elements) return undefined;
  if ('list' in elements) return elements.list.length;
  return Array.isArray(elements.value) ? elements.value.length : undefined;
}

/** A list of known length in parts of at most `size` elements; undefined for a list that a node gives. */
export function partsOf(elements: Input, size: number): Input[] | undefined {
  if ('list' in elements) return slicesOf(elements.list, size).map((list) => ({ list }));
  if (!('value' in elements && Array.isArray(elements.value))) return undefined;
  return slicesOf(elements.value as unknown[], size).map((value) => ({ value }));
}

function slicesOf<T>(all: readonly T[], size: number): T[][] {
  const slices: T[][] = [];
  for (let at = 0; at < all.length; at += size) slices.push(all.slice(at, at + size));
  return slices;
}
