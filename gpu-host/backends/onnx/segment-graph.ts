import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Attribute, GraphBuilder } from './graph-builder.ts';
import { segmentInput } from './segments.ts';

/**
 * Attention of one input per row over its gathered columns and its segments. Each part is attended to alone. The results are then weighted by the
 * parts' shares of the whole softmax, which follow from the log-sums of the parts' scores (Dao et al., Flash-Decoding, 2023).
 *
 * Nodes of the gathered columns are named `near`, those of the segments `far`. Returns [B, 1, heads × headDim].
 * @param gathered inputs of the attention over gathered columns, with the query first
 * @param attributes attributes of the same attention
 */
export function addSegmentedAttention(
  graph: GraphBuilder,
  config: ModelConfig,
  layer: number,
  gathered: readonly string[],
  attributes: Readonly<Record<string, Attribute>>,
): string {
  const { heads, headDim } = config;
  const node = (
    operator: string,
    inputs: readonly string[],
    name: string,
    nodeAttributes: Record<string, Attribute> = {},
  ) => graph.node(operator, inputs, `${name}.${layer}`, nodeAttributes);
  const reshape = (value: string, dims: readonly number[], name: string) =>
    node('Reshape', [value, graph.integers(dims)], name);
  /** Attention, and the logarithm of the sum of its exponentiated scores, [rows, heads]. */
  const attend = (inputs: readonly string[], nodeAttributes: Readonly<Record<string, Attribute>>, name: string) => {
    const scores = `${name}-scores.${layer}`;
    // Mode 2 makes the fourth output the scores with the bias.
    const mode = { ...nodeAttributes, qk_matmul_output_mode: 2 };
    graph.nodeOf('Attention', inputs, [`${name}-attended.${layer}`, '', '', scores], mode);
    const logs = node('LogSoftmax', [scores], `${name}-logs`, { axis: -1 });
    // LogSoftmax is the score minus the log-sum, so the first score of a row gives the log-sum.
    const first = (value: string, result: string) =>
      node('Slice', [value, graph.integers([0]), graph.integers([1]), graph.integers([3])], `${name}-${result}`);
    const sum = node('Sub', [first(scores, 'first-score'), first(logs, 'first-log')], `${name}-log-sum-wide`);
    return { output: `${name}-attended.${layer}`, logSum: reshape(sum, [-1, heads], `${name}-log-sum`) };
  };

  const near = attend(gathered, attributes, 'near');
  const query = reshape(gathered[0], [0, heads, 1, headDim], 'query-by-head');
  const planes = [segmentInput(2 * layer), segmentInput(2 * layer + 1)];
  const far = attend([node('Gather', [query, 'segment_rows'], 'far-query'), ...planes], { scale: { float: 1 } }, 'far');

  const nearSum = reshape(near.logSum, [0, 1, heads], 'near-log-sum-part');
  const farSums = node(
    'Add',
    [node('Gather', [far.logSum, 'row_segments'], 'far-log-sums'), 'segment_bias'],
    'far-parts',
  );
  const sums = node('Concat', [nearSum, farSums], 'log-sums', { axis: 1 });
  const shares = reshape(node('Softmax', [sums], 'shares', { axis: 1 }), [0, 0, heads, 1], 'shares-wide');
  const farOutput = reshape(far.output, [0, heads, headDim], 'far-output');
  const outputs = [
    reshape(near.output, [0, 1, heads, headDim], 'near-output'),
    node('Gather', [farOutput, 'row_segments'], 'far-outputs'),
  ];
  const weighted = node('Mul', [node('Concat', outputs, 'parts', { axis: 1 }), shares], 'parts-weighted');
  const sum = node('ReduceSum', [weighted, graph.integers([1])], 'attended-by-head', { keepdims: 1 });
  return reshape(sum, [0, 1, heads * headDim], 'attended-whole');
}
