import { ElementType, GraphBuilder } from '#gpu-host/backends/onnx/graph-builder.ts';

/** An ONNX model of one float32 matrix product, `c = a · b`. */
export function matMulModel(): Uint8Array {
  const graph = new GraphBuilder();
  const a = graph.input('a', ElementType.float32, ['m', 'k']);
  const b = graph.input('b', ElementType.float32, ['k', 'n']);
  graph.node('MatMul', [a, b], 'c');
  graph.output('c', ElementType.float32, ['m', 'n']);
  return graph.encode();
}
