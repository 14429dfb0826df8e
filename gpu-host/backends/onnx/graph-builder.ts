import { parse, relative } from 'node:path';
import onnxProto from 'onnx-proto';

const { onnx } = onnxProto;

/** ONNX `TensorProto.DataType` numbers of the element types used here. */
export const ElementType = { float32: 1, uint8: 2, int32: 6, int64: 7, boolean: 9, float16: 10, bfloat16: 16 } as const;
export type ElementTypeNumber = (typeof ElementType)[keyof typeof ElementType];

/** Place of external data: `bytes` bytes at `offset` of an absolute path, with any alignment. */
export interface FileRange {
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
}

/** Integers, lists of integers, texts, or `{ float }`: ONNX distinguishes 1 from 1.0. */
export type Attribute = number | readonly number[] | string | { readonly float: number };

/** External data is named relative to this folder. Sessions must receive it as their folder of external initializers. */
export const EXTERNAL_DATA_ROOT = parse(process.cwd()).root;

const MICROSOFT = 'com.microsoft';
const MICROSOFT_OPERATORS = new Set([
  'FastGelu',
  'FusedMatMul',
  'GatherBlockQuantized',
  'MatMulNBits',
  'QuickGelu',
  'RotaryEmbedding',
  'SkipSimplifiedLayerNormalization',
]);

/** Collects the nodes of one ONNX graph. A value is known by its name; the builder checks that names are unique. */
export class GraphBuilder {
  readonly #nodes: onnxProto.onnx.INodeProto[] = [];
  readonly #initializers = new Map<string, onnxProto.onnx.ITensorProto>();
  readonly #inputs: onnxProto.onnx.IValueInfoProto[] = [];
  readonly #outputs: onnxProto.onnx.IValueInfoProto[] = [];
  readonly #names: Set<string>;
  readonly #prefix: string;

  /** A branch receives the names of the graph around it, which it must not reuse, and a prefix for its own constants. */
  constructor(names = new Set<string>(), prefix = '') {
    this.#names = names;
    this.#prefix = prefix;
  }

  /** A graph input; dimensions given as text are dynamic. */
  input(name: string, type: ElementTypeNumber, dims: readonly (number | string)[]): string {
    this.#inputs.push(valueInfo(this.#claim(name), type, dims));
    return name;
  }

  output(name: string, type: ElementTypeNumber, dims: readonly (number | string)[]): void {
    this.#outputs.push(valueInfo(name, type, dims));
  }

  /** Adds a node with one output, and returns that output. */
  node(
    operator: string,
    inputs: readonly string[],
    output: string,
    attributes: Record<string, Attribute> = {},
  ): string {
    this.nodeOf(operator, inputs, [output], attributes);
    return output;
  }

  /** Adds a node with any number of outputs; an empty name stands for an unwanted output. */
  nodeOf(
    operator: string,
    inputs: readonly string[],
    outputs: readonly string[],
    attributes: Record<string, Attribute> = {},
  ): void {
    for (const output of outputs) if (output !== '') this.#claim(output);
    this.#nodes.push({
      opType: operator,
      domain: MICROSOFT_OPERATORS.has(operator) ? MICROSOFT : '',
      name: `${operator}:${outputs[0]}`,
      input: [...inputs],
      output: [...outputs],
      attribute: Object.entries(attributes).map(([name, value]) => attributeOf(name, value)),
    });
  }

  /** A list of int64 inside the graph file; the same list is stored once. */
  integers(values: readonly number[]): string {
    const name = `${this.#prefix}integers:${values.join(',')}`;
    if (!this.#initializers.has(name)) {
      const data = BigInt64Array.from(values, BigInt);
      this.#initializers.set(this.#claim(name), {
        name,
        dataType: ElementType.int64,
        dims: [values.length],
        rawData: new Uint8Array(data.buffer),
      });
    }
    return name;
  }

  /** One int32 inside the graph file. */
  integer32(value: number): string {
    const name = `${this.#prefix}integer32:${value}`;
    if (!this.#initializers.has(name)) {
      this.#initializers.set(this.#claim(name), {
        name,
        dataType: ElementType.int32,
        dims: [1],
        rawData: new Uint8Array(Int32Array.of(value).buffer),
      });
    }
    return name;
  }

  /** One float32 inside the graph file. */
  float(value: number): string {
    const name = `${this.#prefix}float:${value}`;
    return this.#initializers.has(name) ? name : this.floats(name, Float32Array.of(value), []);
  }

  /** A list of float32 inside the graph file, under a name of its own. */
  floats(name: string, values: Float32Array, dims: readonly number[]): string {
    const rawData = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    this.#initializers.set(this.#claim(name), { name, dataType: ElementType.float32, dims: [...dims], rawData });
    return name;
  }

  /** A constant whose bytes lie in a file, mapped into memory by the session. The same name is stored once. */
  external(name: string, type: ElementTypeNumber, dims: readonly number[], range: FileRange): string {
    if (!this.#initializers.has(name)) {
      const location = relative(EXTERNAL_DATA_ROOT, range.file);
      this.#initializers.set(this.#claim(name), {
        name,
        dataType: type,
        dims: [...dims],
        dataLocation: onnx.TensorProto.DataLocation.EXTERNAL,
        externalData: [
          { key: 'location', value: location },
          { key: 'offset', value: String(range.offset) },
          { key: 'length', value: String(range.bytes) },
        ],
      });
    }
    return name;
  }

  /**
   * Computes `then` only when the boolean `condition` holds. Otherwise the outputs are empty tensors with the given types and `emptyDims`,
   * of which one should be 0. The branch may use any value of this graph.
   */
  when(
    condition: string,
    outputs: readonly {
      readonly name: string;
      readonly type: ElementTypeNumber;
      readonly emptyDims: readonly number[];
    }[],
    then: (branch: GraphBuilder) => readonly string[],
  ): void {
    this.either(condition, outputs, then, (skipped) =>
      outputs.map(({ name, type, emptyDims }) => skipped.empty(name, type, emptyDims)),
    );
  }

  /** A tensor without values, for the output `name` of a branch that does not compute it. One of `dims` should be 0. */
  empty(name: string, type: ElementTypeNumber, dims: readonly number[]): string {
    const empty = this.#claim(`${this.#prefix}${name}:empty`);
    this.#initializers.set(empty, { name: empty, dataType: type, dims: [...dims], rawData: new Uint8Array(0) });
    return this.node('Identity', [empty], `${this.#prefix}${name}:none`);
  }

  /** Computes `then` when the boolean `condition` holds, else `otherwise`. The branches may use any value of this graph. */
  either(
    condition: string,
    outputs: readonly { readonly name: string; readonly type: ElementTypeNumber }[],
    then: (branch: GraphBuilder) => readonly string[],
    otherwise: (branch: GraphBuilder) => readonly string[],
  ): void {
    const branchOf = (name: string, build: (branch: GraphBuilder) => readonly string[]) => {
      const branch = new GraphBuilder(this.#names, `${outputs[0].name}/${name}/`);
      const results = build(branch);
      outputs.forEach(({ type }, i) => {
        branch.#outputs.push({ name: results[i], type: { tensorType: { elemType: type } } });
      });
      return branch.#graph(name);
    };
    const { GRAPH } = onnx.AttributeProto.AttributeType;
    this.#nodes.push({
      opType: 'If',
      domain: '',
      name: `If:${outputs[0].name}`,
      input: [condition],
      attribute: [
        { name: 'then_branch', type: GRAPH, g: branchOf('then', then) },
        { name: 'else_branch', type: GRAPH, g: branchOf('else', otherwise) },
      ],
      output: outputs.map(({ name }) => this.#claim(name)),
    });
  }

  encode(): Uint8Array {
    const model = onnx.ModelProto.create({
      irVersion: 10,
      opsetImport: [
        { domain: '', version: 24 },
        { domain: MICROSOFT, version: 1 },
      ],
      graph: this.#graph('pie'),
    });
    return onnx.ModelProto.encode(model).finish();
  }

  #graph(name: string): onnxProto.onnx.IGraphProto {
    return {
      name,
      node: this.#nodes,
      initializer: [...this.#initializers.values()],
      input: this.#inputs,
      output: this.#outputs,
    };
  }

  #claim(name: string): string {
    if (this.#names.has(name)) throw new Error(`The graph has two values named ${name}.`);
    this.#names.add(name);
    return name;
  }
}

function attributeOf(name: string, value: Attribute): onnxProto.onnx.IAttributeProto {
  const { AttributeType } = onnx.AttributeProto;
  if (typeof value === 'number') return { name, type: AttributeType.INT, i: value };
  if (typeof value === 'string') return { name, type: AttributeType.STRING, s: new TextEncoder().encode(value) };
  if ('float' in value) return { name, type: AttributeType.FLOAT, f: value.float };
  return { name, type: AttributeType.INTS, ints: [...value] };
}

function valueInfo(
  name: string,
  type: ElementTypeNumber,
  dims: readonly (number | string)[],
): onnxProto.onnx.IValueInfoProto {
  const dim = dims.map((d) => (typeof d === 'string' ? { dimParam: d } : { dimValue: d }));
  return { name, type: { tensorType: { elemType: type, shape: { dim } } } };
}
