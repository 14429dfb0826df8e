import { type Graph, type Input, type Kind, type Node, needsOf, type Ref, refsIn } from './graph.ts';

/** Nodes that take no time worth computing something beside them. */
const INSTANT: ReadonlySet<Kind> = new Set<Kind>(['argument', 'fork', 'condition', 'aggregate', 'prefetching']);
/** Time of a generation, in other nodes. */
const DECODING_TIME = 8;
/** A shorter known text is not worth a device call of its own. */
const MIN_CHARACTERS = 32;

/**
 * Splits each prefilling before the parts that come later than those before them: a partial prefilling computes the earlier parts while the
 * nodes that give the later ones run. Parts that come at about the same time stay together.
 */
export function splitPrefills(graph: Graph): Graph {
  const times = timesOf(graph);
  const given = new Set(graph.nodes.filter(({ operation }) => operation.kind === 'argument').map(({ id }) => id));
  const nodes = graph.nodes.flatMap((node): Node[] => {
    if (node.operation.kind !== 'prefilling' || node.ordered) return [node];
    const { context, parts } = node.inputs;
    const all = parts && 'list' in parts ? parts.list : [];
    const first = [...(context ? refsIn(context) : []), ...node.when.map(({ test }) => test)];
    const cuts = cutsOf(all, latest(first, times), times, given);
    return cuts.length === 0 ? [node] : split(node, all, cuts);
  });
  return { ...graph, nodes };
}

/** Indices of the parts before which a prompt is split. `from` is the time at which its first part could be computed. */
function cutsOf(
  parts: readonly Input[],
  from: number,
  times: ReadonlyMap<string, number>,
  given: ReadonlySet<string>,
): number[] {
  const cuts: number[] = [];
  let [time, characters] = [from, 0];
  for (const [i, part] of parts.entries()) {
    const own = latest(refsIn(part), times);
    if (own > time) {
      if (characters >= MIN_CHARACTERS) {
        cuts.push(i);
        characters = 0;
      }
      time = own;
    }
    characters += lengthOf(part, given);
  }
  return cuts;
}

/** Characters of a part; those of a text that a node gives count as enough, and those of an argument, which may be short, as none. */
function lengthOf(part: Input, given: ReadonlySet<string>): number {
  if ('from' in part && given.has(part.from.node)) return 0;
  return 'value' in part && typeof part.value === 'string' ? part.value.length : MIN_CHARACTERS;
}

function split(node: Node, parts: readonly Input[], cuts: readonly number[]): Node[] {
  const nodes: Node[] = [];
  const ends = [...cuts, parts.length];
  let context = node.inputs.context;
  let from = 0;
  for (const [i, end] of ends.entries()) {
    const isLast = i === ends.length - 1;
    const id = isLast ? node.id : `${node.id}<${i}`;
    const inputs = { ...(context && { context }), parts: { list: parts.slice(from, end) } };
    const kind = isLast ? 'prefilling' : 'partial-prefilling';
    // The earlier parts wait for their values only.
    const after = isLast ? node.after : [];
    nodes.push({ ...node, id, inputs, after, operation: { ...node.operation, kind } as Node['operation'] });
    context = { from: { node: id, port: 'context', type: 'context' } };
    from = end;
  }
  return nodes;
}

/** When each node ends at the earliest, in nodes that take time. */
function timesOf(graph: Graph): ReadonlyMap<string, number> {
  const times = new Map<string, number>();
  for (const node of graph.nodes) {
    const { kind } = node.operation;
    const own = INSTANT.has(kind)
      ? 0
      : kind === 'decoding' || kind === 'partial-decoding' || kind === 'loop'
        ? DECODING_TIME
        : 1;
    times.set(node.id, latest(needsOf(node), times) + own);
  }
  return times;
}

const latest = (refs: readonly Ref[], times: ReadonlyMap<string, number>): number =>
  refs.reduce((time, { node }) => Math.max(time, times.get(node) ?? 0), 0);
