import { type Experts, kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import { ModelError } from '#gpu-host/models/errors.ts';
import type { Projection } from '../../models/adapter.ts';
import { windowSizes } from '../positions.ts';
import type { GgmlAdapter } from './adapter.ts';
import { type Ggml, type GgmlDevice, tooLittleMemory } from './library.ts';
import type { KvPool } from './pool.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';
import type { LayerRotation, LayerWeights, Weights } from './weights.ts';

const { GGML_PREC_F32, GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_I32 } = CONSTANTS;

/** Sequences of a batch whose attention is computed together: `rows` sequences with `queries` inputs and `columns` keys each, padding included. */
export interface GroupShape {
  readonly rows: number;
  readonly queries: number;
  readonly columns: number;
}

/** Everything that decides the nodes of a step's graph. Batches of one shape share a graph. */
export interface StepShape {
  /** Inputs of all sequences, padding included. */
  readonly inputs: number;
  readonly groups: readonly GroupShape[];
  /** True when the inputs lie in the order of the one group's queries, so that no rows need to be moved around attention. */
  readonly aligned: boolean;
  /** Inputs whose states are wanted, padding included. */
  readonly outputs: number;
  /** Inputs, the first of the outputs, whose logits are wanted. */
  readonly logitRows: number;
  /** True when some inputs are embeds. */
  readonly embeds: boolean;
  /** True when some position is at least `ROTATION_SPAN`, so that a second rotation is needed. */
  readonly far: boolean;
  /** True when some sequence wants the attention that its keys receive. */
  readonly received: boolean;
}

/** Inputs and results of one group of a graph. */
export interface GroupTensors {
  /** Row of the flat inputs for each query of the group; absent when the graph is aligned. */
  readonly queries: Pointer | undefined;
  /** Slot of each column, row after row, and one slot more (see `store` of the decoder's attention). */
  readonly slots: Pointer;
  /** Column, counted over all rows of the group, that takes each flat input's key. */
  readonly ownColumns: Pointer;
  /** `columns × queries × rows` of float16, 0 or -Infinity. */
  readonly mask: Pointer;
  /** Like `mask`, for layers with a window: one for each size of {@link windowSizes}. */
  readonly windowMasks: readonly Pointer[];
  /** Attention received by each column, `columns × rows`, summed over queries, heads and layers. */
  readonly received: Pointer | undefined;
}

/** A graph with memory of its own, computed again and again with new inputs. */
export interface StepGraph {
  readonly shape: StepShape;
  readonly graph: Pointer;
  readonly bytes: number;
  readonly tokens: Pointer;
  /** Embeds (`hiddenSize × inputs`), and a factor for each input's token: 0 where the input is an embed. */
  readonly embeds: { readonly values: Pointer; readonly tokenFactors: Pointer } | undefined;
  readonly positions: Pointer;
  /** Multiples of the rotation's span, for far positions. */
  readonly spans: Pointer | undefined;
  /** Slot of the pool that takes each input's key and value. */
  readonly writes: Pointer;
  readonly groups: readonly GroupTensors[];
  /** Row of the attention's results for each flat input; absent when the graph is aligned. */
  readonly attended: Pointer | undefined;
  readonly outputs: Pointer | undefined;
  readonly states: Pointer | undefined;
  readonly logits: Pointer | undefined;
  dispose(): void;
}

/** What graphs are built from. */
export interface GraphParts {
  readonly ggml: Ggml;
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly pool: KvPool;
  /** Computes the nodes, and holds their results in its memory. */
  readonly device: GgmlDevice;
}

/** Slope of the sigmoid in gpt-oss's activation. */
const SWIGLU_SLOPE = 1.702;
/** Tensors of one layer, beside those of its groups of sequences. */
const LAYER_TENSORS = 192;
const GROUP_TENSORS = 32;
const OTHER_TENSORS = 64;

/** Builds the graph of the whole model for batches of one shape. @throws ModelError when the device has no memory for it, or lacks an operation */
export function buildStep(parts: GraphParts, shape: StepShape, adapter: GgmlAdapter | undefined): StepGraph {
  const tensors = OTHER_TENSORS + parts.config.layers * (LAYER_TENSORS + GROUP_TENSORS * shape.groups.length);
  const memory = new GraphMemory(parts, tensors);
  try {
    return new DecoderBuilder(parts, shape, adapter, memory).build();
  } catch (error) {
    memory.dispose();
    throw error;
  }
}

/** A graph of the output head alone, for states that were computed earlier. */
export interface HeadGraph {
  readonly graph: Pointer;
  readonly bytes: number;
  readonly rows: number;
  readonly states: Pointer;
  readonly logits: Pointer;
  dispose(): void;
}

/** Builds the graph that gives the logits of `rows` states. */
export function buildHead(parts: GraphParts, rows: number): HeadGraph {
  const memory = new GraphMemory(parts, OTHER_TENSORS);
  const { functions } = parts.ggml;
  try {
    const states = memory.input(
      functions.ggml_new_tensor_2d(memory.context, GGML_TYPE_F32, parts.config.hiddenSize, rows),
    );
    const logits = headNodes(parts, memory.context, states);
    functions.ggml_set_output(logits);
    functions.ggml_build_forward_expand(memory.graph, logits);
    const bytes = memory.allocate();
    return { graph: memory.graph, bytes, rows, states, logits, dispose: () => memory.dispose() };
  } catch (error) {
    memory.dispose();
    throw error;
  }
}

/** Logits of states. */
function headNodes({ ggml, config, weights }: GraphParts, context: Pointer, states: Pointer): Pointer {
  const f = ggml.functions;
  const { logitScale, logitSoftcap } = config;
  const products = product(ggml, context, weights.head, states);
  const scaled = (x: Pointer, scale: number) => (scale === 1 ? x : f.ggml_scale(context, x, scale));
  if (logitSoftcap === null) return scaled(products, logitScale);
  return f.ggml_scale(context, f.ggml_tanh(context, scaled(products, logitScale / logitSoftcap)), logitSoftcap);
}

/** `matrix · x`, with sums in 32 bits: GPUs would add in 16 bits, whose range large activations leave. */
function product({ functions }: Ggml, context: Pointer, matrix: Pointer, x: Pointer): Pointer {
  const result = functions.ggml_mul_mat(context, matrix, x);
  functions.ggml_prec_set_acc(result, GGML_PREC_F32);
  return result;
}

/** The descriptions of a graph's tensors, and the memory of their values. */
class GraphMemory {
  readonly context: Pointer;
  readonly graph: Pointer;
  readonly #ggml: Ggml;
  readonly #device: GgmlDevice;
  readonly #allocator: Pointer;

  constructor({ ggml, device }: GraphParts, tensors: number) {
    const { functions } = ggml;
    this.#ggml = ggml;
    this.#device = device;
    this.context = ggml.context(tensors, functions.ggml_graph_overhead_custom(tensors, false));
    this.graph = functions.ggml_new_graph_custom(this.context, tensors, false);
    this.#allocator = functions.ggml_gallocr_new(functions.ggml_backend_dev_buffer_type(device.handle));
  }

  /** Marks a tensor as an input: nothing else uses its memory before the graph has read it. Inputs that no node reads have memory, too. */
  input(tensor: Pointer): Pointer {
    this.#ggml.functions.ggml_set_input(tensor);
    this.#ggml.functions.ggml_build_forward_expand(this.graph, tensor);
    return tensor;
  }

  /** Allocates all values of the graph and returns their bytes. @throws ModelError */
  allocate(): number {
    const { functions } = this.#ggml;
    this.#checkOperations();
    if (!functions.ggml_gallocr_alloc_graph(this.#allocator, this.graph))
      throw tooLittleMemory(this.#ggml, this.#device, 'the values of a step');
    return functions.ggml_gallocr_get_buffer_size(this.#allocator, 0);
  }

  /** ggml ends the process at an operation that the device lacks. */
  #checkOperations(): void {
    const { functions } = this.#ggml;
    if (this.#device.isCpu) return;
    for (let i = 0; i < functions.ggml_graph_n_nodes(this.graph); i++) {
      const node = functions.ggml_graph_node(this.graph, i);
      if (this.#ggml.supports(this.#device, node)) continue;
      throw new ModelError(
        'unsupported-model',
        `backend = "ggml": ${this.#device.description} does not compute ${functions.ggml_op_desc(node)} for tensors of this model's types and sizes`,
        { hint: 'compute on the CPU' },
      );
    }
  }

  dispose(): void {
    this.#ggml.functions.ggml_gallocr_free(this.#allocator);
    this.#ggml.functions.ggml_free(this.context);
  }
}

class DecoderBuilder {
  readonly #parts: GraphParts;
  readonly #memory: GraphMemory;
  readonly #shape: StepShape;
  readonly #adapter: GgmlAdapter | undefined;
  readonly #model: ModelConfig;
  readonly #windows: readonly number[];
  readonly #positions: Pointer;
  readonly #spans: Pointer | undefined;
  readonly #writes: Pointer;
  readonly #groups: Group[];
  readonly #attended: Pointer | undefined;

  constructor(parts: GraphParts, shape: StepShape, adapter: GgmlAdapter | undefined, memory: GraphMemory) {
    this.#parts = parts;
    this.#memory = memory;
    this.#shape = shape;
    this.#adapter = adapter;
    this.#model = parts.config;
    this.#windows = windowSizes(parts.config);
    this.#positions = this.#integers(shape.inputs);
    this.#spans = shape.far ? this.#integers(shape.inputs) : undefined;
    this.#writes = this.#integers(shape.inputs);
    this.#groups = shape.groups.map((group) => ({
      ...group,
      queryRows: shape.aligned ? undefined : this.#integers(group.rows * group.queries),
      slots: this.#integers(group.rows * group.columns + 1),
      ownColumns: this.#integers(shape.inputs),
      mask: this.#mask(group),
      windowMasks: this.#windows.map(() => this.#mask(group)),
      received: undefined,
    }));
    this.#attended = shape.aligned ? undefined : this.#integers(shape.inputs);
  }

  build(): StepGraph {
    const { inputs, outputs, logitRows, embeds } = this.#shape;
    const { hiddenSize, layers, embeddingScale } = this.#model;
    const { weights } = this.#parts;
    const f = this.#f;
    const tokens = this.#integers(inputs);
    const outputRows = outputs > 0 ? this.#integers(outputs) : undefined;
    let rows = this.#scaled(f.ggml_get_rows(this.#context, weights.embeddings, tokens), embeddingScale);
    const embedTensors = embeds
      ? {
          values: this.#input(f.ggml_new_tensor_2d(this.#context, GGML_TYPE_F32, hiddenSize, inputs)),
          tokenFactors: this.#input(f.ggml_new_tensor_2d(this.#context, GGML_TYPE_F32, 1, inputs)),
        }
      : undefined;
    if (embedTensors) rows = this.#add(this.#mul(rows, embedTensors.tokenFactors), embedTensors.values);
    for (let layer = 0; layer < layers; layer++) {
      const isLast = layer === layers - 1;
      rows = this.#layer(layer, rows, isLast ? outputRows : undefined, isLast && outputRows === undefined);
    }
    let states: Pointer | undefined;
    let logits: Pointer | undefined;
    if (outputRows !== undefined) {
      states = this.#norm(rows, weights.norm);
      f.ggml_set_output(states);
      f.ggml_build_forward_expand(this.#memory.graph, states);
    }
    if (states !== undefined && logitRows > 0) {
      const first = f.ggml_view_2d(this.#context, states, hiddenSize, logitRows, 4 * hiddenSize, 0);
      logits = headNodes(this.#parts, this.#context, first);
      f.ggml_set_output(logits);
      f.ggml_build_forward_expand(this.#memory.graph, logits);
    }
    for (const { received } of this.#groups) {
      if (received === undefined) continue;
      f.ggml_set_output(received);
      f.ggml_build_forward_expand(this.#memory.graph, received);
    }
    const bytes = this.#memory.allocate();
    return {
      shape: this.#shape,
      graph: this.#memory.graph,
      bytes,
      tokens,
      embeds: embedTensors,
      positions: this.#positions,
      spans: this.#spans,
      writes: this.#writes,
      groups: this.#groups.map(({ queryRows, slots, ownColumns, mask, windowMasks, received }) => ({
        queries: queryRows,
        ...{ slots, ownColumns, mask, windowMasks, received },
      })),
      attended: this.#attended,
      outputs: outputRows,
      states,
      logits,
      dispose: () => this.#memory.dispose(),
    };
  }

  /**
   * One decoder layer.
   * @param outputRows the inputs that later nodes read; all by default
   * @param storesOnly true when only keys, values and received attention of this layer are wanted
   */
  #layer(index: number, rows: Pointer, outputRows: Pointer | undefined, storesOnly: boolean): Pointer {
    const { inputs } = this.#shape;
    const { headDim, heads, kvHeads, queryKeyNormSpan, residualScale } = this.#model;
    const layer = this.#parts.weights.layers[index] as LayerWeights;
    const f = this.#f;
    const context = this.#context;
    const normed = this.#normIfAny(rows, layer.inputNorm);
    const project = (name: Projection, weight: Pointer, bias: Pointer | null) =>
      this.#addIfAny(this.#linear(index, name, weight, normed), bias);
    const headsOf = (projected: Pointer, count: number, norm: Pointer | null) => {
      const isOfRow = queryKeyNormSpan === 'row';
      const whole = isOfRow ? this.#normIfAny(projected, norm) : projected;
      const split = f.ggml_reshape_3d(context, whole, headDim, count, inputs);
      return this.#rotate(isOfRow ? split : this.#normIfAny(split, norm), layer.rotation);
    };
    const query = headsOf(project('q_proj', layer.query, layer.queryBias), heads, layer.queryNorm);
    const key = headsOf(project('k_proj', layer.key, layer.keyBias), kvHeads, layer.keyNorm);
    const value = project('v_proj', layer.value, layer.valueBias);
    const attended = this.#attention(index, query, key, value, storesOnly);
    if (attended === undefined) return rows;
    let change = this.#addIfAny(this.#linear(index, 'o_proj', layer.output, attended), layer.outputBias);
    let residual = rows;
    if (outputRows !== undefined) {
      change = f.ggml_get_rows(context, change, outputRows);
      residual = f.ggml_get_rows(context, rows, outputRows);
    }
    residual = this.#add(this.#scaled(this.#normIfAny(change, layer.attentionOutputNorm), residualScale), residual);
    const inner = this.#normIfAny(residual, layer.postNorm);
    const result =
      layer.router === null
        ? this.#feedForward(index, layer, inner)
        : this.#experts(layer, layer.router, inner, outputRows === undefined ? inputs : this.#shape.outputs);
    return this.#add(this.#scaled(this.#normIfAny(result, layer.feedForwardOutputNorm), residualScale), residual);
  }

  #feedForward(index: number, layer: LayerWeights, x: Pointer): Pointer {
    const gate = this.#linear(index, 'gate_proj', layer.gate, x);
    const up = this.#linear(index, 'up_proj', layer.up, x);
    return this.#linear(index, 'down_proj', layer.down, this.#gated(gate, up));
  }

  /** A mixture of experts: each row passes the experts that its router's scores choose, and their results are added by weight. */
  #experts(layer: LayerWeights, router: Pointer, x: Pointer, rows: number): Pointer {
    const f = this.#f;
    const context = this.#context;
    const { hiddenSize, experts } = this.#model;
    const { count, used, router: softmax } = experts as Experts;
    const scores = this.#addIfAny(product(this.#parts.ggml, context, router, x), layer.routerBias); // count × rows
    const chosen = f.ggml_argsort_top_k(context, scores, used); // used × rows
    const over = softmax === 'all' ? f.ggml_soft_max(context, scores) : scores;
    const picked = f.ggml_get_rows(context, f.ggml_reshape_3d(context, over, 1, count, rows), chosen); // 1 × used × rows
    const flat = f.ggml_reshape_2d(context, picked, used, rows);
    const weights = f.ggml_reshape_3d(
      context,
      softmax === 'all' ? flat : f.ggml_soft_max(context, flat),
      1,
      used,
      rows,
    );
    const linear = (matrices: Pointer, bias: Pointer | null, input: Pointer) => {
      const products = f.ggml_mul_mat_id(context, matrices, input, chosen);
      f.ggml_prec_set_acc(products, GGML_PREC_F32);
      return bias === null ? products : f.ggml_add_id(context, products, bias, chosen);
    };
    const input = f.ggml_reshape_3d(context, x, hiddenSize, 1, rows);
    const gate = linear(layer.gate, layer.gateBias, input);
    const up = linear(layer.up, layer.upBias, input);
    const results = this.#mul(linear(layer.down, layer.downBias, this.#gated(gate, up)), weights); // hiddenSize × used × rows
    let sum: Pointer | undefined;
    for (let i = 0; i < used; i++) {
      const one = f.ggml_view_2d(context, results, hiddenSize, rows, 4 * hiddenSize * used, 4 * hiddenSize * i);
      sum = sum === undefined ? one : this.#add(sum, one);
    }
    return used === 1 ? f.ggml_cont(context, sum as Pointer) : (sum as Pointer);
  }

  #gated(gate: Pointer, up: Pointer): Pointer {
    const { activation, activationLimit } = this.#model;
    if (activation === 'clamped')
      return this.#f.ggml_swiglu_oai(this.#context, gate, up, SWIGLU_SLOPE, activationLimit);
    return activation === 'gelu'
      ? this.#f.ggml_geglu_split(this.#context, gate, up)
      : this.#f.ggml_swiglu_split(this.#context, gate, up);
  }

  /** Stores keys and values in the pool, and returns the attention's result for each flat input. */
  #attention(layer: number, query: Pointer, key: Pointer, value: Pointer, storesOnly: boolean): Pointer | undefined {
    const { inputs, aligned, received } = this.#shape;
    const { headDim, heads } = this.#model;
    const width = kvSize(this.#model);
    const { pool } = this.#parts;
    const f = this.#f;
    const context = this.#context;
    const keyRows = f.ggml_reshape_2d(context, key, width, inputs);
    // Later nodes read the results of these writes and not the pool itself, so that the graph orders them.
    const keys = f.ggml_set_rows(context, pool.keys[layer] as Pointer, keyRows, this.#writes);
    const values = f.ggml_set_rows(context, pool.values[layer] as Pointer, value, this.#writes);
    for (const stored of [keys, values]) f.ggml_build_forward_expand(this.#memory.graph, stored);
    if (storesOnly && !received) return undefined;
    const queryRows = f.ggml_reshape_2d(context, query, heads * headDim, inputs);
    let results: Pointer | undefined;
    for (const group of this.#groups) {
      const groupQueries = group.queryRows ? f.ggml_get_rows(context, queryRows, group.queryRows) : queryRows;
      const split = f.ggml_reshape_4d(context, groupQueries, headDim, heads, group.queries, group.rows);
      const q = f.ggml_permute(context, split, 0, 2, 1, 3);
      const k = this.#columns(group, keys, keyRows);
      const v = this.#columns(group, values, value);
      const result =
        (received ? undefined : this.#flashAttention(layer, group, q, k, v)) ??
        this.#softMaxAttention(layer, group, q, k, v);
      results = results === undefined ? result : f.ggml_concat(context, results, result, 1);
    }
    if (storesOnly || results === undefined) return undefined;
    return aligned || this.#attended === undefined ? results : f.ggml_get_rows(context, results, this.#attended);
  }

  /**
   * Keys or values of a group's columns, `headDim × kvHeads × columns × rows`: those of the pool's slots, and in the columns of a sequence's own
   * inputs the new ones, which the pool may not keep. The row after the last column takes the inputs of other groups, and padding.
   */
  #columns({ rows, columns, slots, ownColumns }: Group, stored: Pointer, own: Pointer): Pointer {
    const { headDim, kvHeads } = this.#model;
    const width = kvSize(this.#model);
    const f = this.#f;
    const gathered = f.ggml_get_rows(this.#context, stored, slots);
    const whole = f.ggml_set_rows(this.#context, gathered, own, ownColumns);
    return f.ggml_view_4d(
      ...([this.#context, whole, headDim, kvHeads, columns, rows] as const),
      ...([4 * headDim, 4 * width, 4 * width * columns, 0] as const),
    );
  }

  /** `(headDim · heads) × (queries · rows)`; undefined when the device lacks it for heads of this size. */
  #flashAttention(layer: number, group: Group, q: Pointer, k: Pointer, v: Pointer): Pointer | undefined {
    const { rows, queries } = group;
    const { headDim, heads, attentionScale, attentionSoftcap } = this.#model;
    const sinks = this.#parts.weights.layers[layer]?.sinks ?? null;
    const mask = this.#maskOf(layer, group);
    const f = this.#f;
    const context = this.#context;
    const byHead = (columns: Pointer) => f.ggml_permute(context, columns, 0, 2, 1, 3);
    const result = f.ggml_flash_attn_ext(
      context,
      q,
      byHead(k),
      byHead(v),
      mask,
      attentionScale,
      0,
      attentionSoftcap ?? 0,
    );
    if (sinks !== null) f.ggml_flash_attn_ext_add_sinks(result, sinks);
    f.ggml_prec_set_acc(result, GGML_PREC_F32);
    if (!this.#parts.ggml.supports(this.#parts.device, result)) return undefined;
    return f.ggml_reshape_2d(context, result, heads * headDim, queries * rows);
  }

  /** Like {@link #flashAttention}, with the weights of all columns in memory: adds them to the group's `received` if that is wanted. */
  #softMaxAttention(layer: number, group: Group, q: Pointer, k: Pointer, v: Pointer): Pointer {
    const { rows, queries, columns } = group;
    const { headDim, heads, attentionScale, attentionSoftcap: cap } = this.#model;
    const sinks = this.#parts.weights.layers[layer]?.sinks ?? null;
    const mask = this.#maskOf(layer, group);
    const f = this.#f;
    const context = this.#context;
    const products = product(this.#parts.ggml, context, f.ggml_permute(context, k, 0, 2, 1, 3), q);
    const scores =
      cap === null
        ? products
        : f.ggml_scale(context, f.ggml_tanh(context, f.ggml_scale(context, products, attentionScale / cap)), cap);
    const scale = cap === null ? attentionScale : 1;
    const weights = f.ggml_soft_max_ext(context, scores, mask, scale, 0); // columns × queries × heads × rows
    if (sinks !== null) f.ggml_soft_max_add_sinks(weights, sinks);
    if (this.#shape.received) {
      const byColumn = f.ggml_cont(context, f.ggml_permute(context, weights, 2, 0, 1, 3)); // queries × heads × columns × rows
      const joined = f.ggml_reshape_3d(context, byColumn, queries * heads, columns, rows);
      const sums = f.ggml_reshape_2d(context, f.ggml_sum_rows(context, joined), columns, rows);
      group.received = group.received === undefined ? sums : this.#add(group.received, sums);
    }
    const transposed = f.ggml_cont(context, f.ggml_permute(context, v, 1, 2, 0, 3)); // columns × headDim × kvHeads × rows
    const result = product(this.#parts.ggml, context, transposed, weights); // headDim × queries × heads × rows
    const byQuery = f.ggml_cont(context, f.ggml_permute(context, result, 0, 2, 1, 3));
    return f.ggml_reshape_2d(context, byQuery, heads * headDim, queries * rows);
  }

  #linear(layer: number, name: Projection, weight: Pointer, x: Pointer): Pointer {
    const times = (matrix: Pointer, vectors: Pointer) => product(this.#parts.ggml, this.#context, matrix, vectors);
    const projected = times(weight, x);
    const change = this.#adapter?.change(layer, name);
    return change === undefined ? projected : this.#add(projected, times(change.up, times(change.down, x)));
  }

  #rotate(heads: Pointer, rotation: LayerRotation | null): Pointer {
    if (rotation === null) return heads;
    const turned = this.#rotateBy(heads, this.#positions, rotation, rotation.near, rotation.scale);
    return this.#spans === undefined ? turned : this.#rotateBy(turned, this.#spans, rotation, rotation.far, 1);
  }

  /** With a base of 1, the angle of a pair is its position divided by its entry of `divisors`. */
  #rotateBy(heads: Pointer, positions: Pointer, rotation: LayerRotation, divisors: Pointer, scale: number): Pointer {
    const { dimensions, mode } = rotation;
    return this.#f.ggml_rope_ext(this.#context, heads, positions, divisors, dimensions, mode, 0, 1, 1, 0, scale, 0, 0);
  }

  #mask({ columns, queries, rows }: GroupShape): Pointer {
    return this.#input(this.#f.ggml_new_tensor_4d(this.#context, GGML_TYPE_F16, columns, queries, 1, rows));
  }

  #maskOf(layer: number, { mask, windowMasks }: Group): Pointer {
    const window = this.#model.windows[layer] ?? null;
    return window === null ? mask : (windowMasks[this.#windows.indexOf(window)] as Pointer);
  }

  #normIfAny(rows: Pointer, weight: Pointer | null): Pointer {
    return weight === null ? rows : this.#norm(rows, weight);
  }

  #addIfAny(rows: Pointer, bias: Pointer | null): Pointer {
    return bias === null ? rows : this.#add(rows, bias);
  }

  #scaled(x: Pointer, scale: number): Pointer {
    return scale === 1 ? x : this.#f.ggml_scale(this.#context, x, scale);
  }

  #norm(rows: Pointer, weight: Pointer): Pointer {
    return this.#mul(this.#f.ggml_rms_norm(this.#context, rows, this.#model.rmsNormEpsilon), weight);
  }

  #add(a: Pointer, b: Pointer): Pointer {
    return this.#f.ggml_add(this.#context, a, b);
  }

  #mul(a: Pointer, b: Pointer): Pointer {
    return this.#f.ggml_mul(this.#context, a, b);
  }

  #integers(count: number): Pointer {
    return this.#input(this.#f.ggml_new_tensor_1d(this.#context, GGML_TYPE_I32, count));
  }

  #input(tensor: Pointer): Pointer {
    return this.#memory.input(tensor);
  }

  get #context(): Pointer {
    return this.#memory.context;
  }

  get #f(): Ggml['functions'] {
    return this.#parts.ggml.functions;
  }
}

/** A group while its graph is built. */
interface Group extends GroupShape {
  readonly queryRows: Pointer | undefined;
  readonly slots: Pointer;
  readonly ownColumns: Pointer;
  readonly mask: Pointer;
  readonly windowMasks: readonly Pointer[];
  received: Pointer | undefined;
}
