import onnxProto from 'onnx-proto';

const { onnx } = onnxProto;
type Node = InstanceType<typeof onnx.NodeProto>;
type Initializer = InstanceType<typeof onnx.TensorProto>;

/** Values of `TensorProto.dataType`. */
const FLOAT = 1;
const INT8 = 3;
const EMBEDDING = 'model.embed_tokens.weight';

/**
 * Undoes the dynamic quantisation of an ONNX graph: each `DynamicQuantizeLinear → MatMulInteger → Cast → Mul` becomes a product with float
 * weights. The model's output head is its embedding, but the export quantised the head separately, so the head becomes the transposed embedding
 * again. The function converts the weights to floats itself: ONNX Runtime would turn a `DequantizeLinear` before a product back into an integer
 * product.
 */
export function floatGraph(bytes: Uint8Array): Uint8Array {
  const model = onnx.ModelProto.decode(bytes);
  const graph = model.graph as { node: Node[]; initializer: Initializer[] };
  const { node: nodes } = graph;
  const producers = new Map(nodes.flatMap((node) => node.output.map((output) => [output, node] as const)));
  const weights = new Weights(graph.initializer);
  const replaced = new Map<Node, Node>();
  const dropped = new Set<Node>();
  for (const product of nodes) {
    if (product.opType !== 'MatMulInteger') continue;
    const [activation = '', weight = ''] = product.input;
    const quantize = producers.get(activation);
    if (quantize?.opType !== 'DynamicQuantizeLinear') throw new Error(`${product.name}: nothing quantises its input`);
    const cast = consumer(nodes, product.output[0] as string, 'Cast');
    const scale = consumer(nodes, cast.output[0] as string, 'Mul');
    dropped.add(quantize).add(cast).add(scale);
    const isHead = product.name.startsWith('/lm_head/');
    const floats = isHead ? weights.transposed(EMBEDDING) : weights.floats(weight.replace(/_quantized$/, ''));
    replaced.set(
      product,
      onnx.NodeProto.create({
        opType: 'MatMul',
        name: `${product.name}/float`,
        input: [quantize.input[0] as string, floats],
        output: [scale.output[0] as string],
      }) as Node,
    );
  }
  graph.node = nodes.filter((node) => !dropped.has(node)).map((node) => replaced.get(node) ?? node);
  // Each dropped `DynamicQuantizeLinear` also made the scale of its input, and a `Mul` multiplies this scale by that of the weights. Only dropped
  // nodes read the product, so this `Mul` is dropped, too.
  const outputs = new Set(graph.node.flatMap((node) => node.output));
  const isFromDroppedNode = (name: string): boolean => producers.has(name) && !outputs.has(name);
  graph.node = inOrder(graph.node.filter((node) => !node.input.some(isFromDroppedNode)));
  const usedInputs = new Set(graph.node.flatMap((node) => node.input));
  graph.initializer = weights.initializers.filter((initializer) => usedInputs.has(initializer.name ?? ''));
  return onnx.ModelProto.encode(model).finish();
}

/** Weights by name, converted to floats on request. Each quantised tensor has one scale and one zero point. */
class Weights {
  readonly initializers: Initializer[];
  readonly #byName: Map<string, Initializer>;

  constructor(initializers: readonly Initializer[]) {
    this.initializers = [...initializers];
    this.#byName = new Map(initializers.map((each) => [each.name ?? '', each]));
  }

  /** Returns the name of a float initializer with the values of `name`, which it adds if necessary. */
  floats(name: string): string {
    return this.#add(`${name}/float`, () => ({ dims: this.#dims(name), values: this.#dequantized(name) }));
  }

  /** As `floats`, with rows and columns exchanged. */
  transposed(name: string): string {
    return this.#add(`${name}/transposed`, () => {
      const [rows = 0, columns = 0] = this.#dims(name);
      const values = this.#dequantized(name);
      const transposed = Float32Array.from(
        values,
        (_, i) => values[(i % rows) * columns + Math.floor(i / rows)] as number,
      );
      return { dims: [columns, rows], values: transposed };
    });
  }

  #add(name: string, make: () => { dims: number[]; values: Float32Array }): string {
    if (!this.#byName.has(name)) {
      const { dims, values } = make();
      const rawData = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      const tensor = onnx.TensorProto.create({ name, dataType: FLOAT, dims, rawData }) as Initializer;
      this.#byName.set(name, tensor);
      this.initializers.push(tensor);
    }
    return name;
  }

  #dims(name: string): number[] {
    return (this.#raw(`${name}_quantized`).dims ?? []).map(Number);
  }

  #dequantized(name: string): Float32Array {
    const quantized = this.#raw(`${name}_quantized`);
    const signed = quantized.dataType === INT8;
    const bytes = Uint8Array.from(quantized.rawData ?? []);
    const scale = this.#raw(`${name}_scale`).floatData?.[0];
    const zero = this.#raw(`${name}_zero_point`).int32Data?.[0];
    if (scale === undefined || zero === undefined)
      throw new Error(`${name}: one scale and one zero point are expected`);
    // The shifts extend the sign of a byte to the whole number.
    const toInteger = (byte: number) => (signed ? (byte << 24) >> 24 : byte);
    return Float32Array.from(bytes, (byte) => (toInteger(byte) - zero) * scale);
  }

  #raw(name: string): Initializer {
    const initializer = this.#byName.get(name);
    if (!initializer) throw new Error(`the graph has no ${name}`);
    return initializer;
  }
}

/** The node of a type that takes `value` as an input. */
function consumer(nodes: readonly Node[], value: string, type: string): Node {
  const node = nodes.find((each) => each.opType === type && each.input.includes(value));
  if (!node) throw new Error(`no ${type} takes ${value}`);
  return node;
}

/** Sorts nodes topologically: each node follows the nodes that make its inputs. */
function inOrder(nodes: readonly Node[]): Node[] {
  const makers = new Map(nodes.flatMap((node) => node.output.map((output) => [output, node] as const)));
  const done = new Set<Node>();
  const visit = (node: Node): void => {
    if (done.has(node)) return;
    for (const input of node.input) {
      const maker = makers.get(input);
      if (maker && maker !== node) visit(maker);
    }
    done.add(node);
  };
  for (const node of nodes) visit(node);
  return [...done];
}
