// Written by generate-signatures.ts from ggml's public headers. Do not edit.

/** Address of an object of ggml. */
export type Pointer = bigint;

/** An array that a function reads or fills, or an address. */
export type Memory = ArrayBufferView | Pointer | null;

/** `struct ggml_init_params`. */
export interface InitParams {
  readonly mem_size: number;
  readonly mem_buffer: null;
  readonly no_alloc: boolean;
}

/** Result type and parameter types of each function, by library. */
export const SIGNATURES: Readonly<Record<'base' | 'main', Readonly<Record<string, readonly [string, ...string[]]>>>> = {
  base: {
    ggml_version: ['const char *'],
    ggml_commit: ['const char *'],
    ggml_init: ['void *', 'ggml_init_params'],
    ggml_free: ['void', 'void *'],
    ggml_tensor_overhead: ['size_t'],
    ggml_graph_overhead_custom: ['size_t', 'size_t', 'bool'],
    ggml_row_size: ['size_t', 'int', 'int64_t'],
    ggml_nbytes: ['size_t', 'void *'],
    ggml_new_tensor_1d: ['void *', 'void *', 'int', 'int64_t'],
    ggml_new_tensor_2d: ['void *', 'void *', 'int', 'int64_t', 'int64_t'],
    ggml_new_tensor_3d: ['void *', 'void *', 'int', 'int64_t', 'int64_t', 'int64_t'],
    ggml_new_tensor_4d: ['void *', 'void *', 'int', 'int64_t', 'int64_t', 'int64_t', 'int64_t'],
    ggml_set_input: ['void', 'void *'],
    ggml_set_output: ['void', 'void *'],
    ggml_log_set: ['void', 'void *', 'void *'],
    ggml_quantize_chunk: ['size_t', 'int', 'void *', 'void *', 'int64_t', 'int64_t', 'int64_t', 'void *'],
    ggml_get_rows: ['void *', 'void *', 'void *', 'void *'],
    ggml_set_rows: ['void *', 'void *', 'void *', 'void *', 'void *'],
    ggml_mul_mat: ['void *', 'void *', 'void *', 'void *'],
    ggml_add: ['void *', 'void *', 'void *', 'void *'],
    ggml_mul: ['void *', 'void *', 'void *', 'void *'],
    ggml_rms_norm: ['void *', 'void *', 'void *', 'float'],
    ggml_rope_ext: [
      'void *',
      'void *',
      'void *',
      'void *',
      'void *',
      'int',
      'int',
      'int',
      'float',
      'float',
      'float',
      'float',
      'float',
      'float',
    ],
    ggml_swiglu_split: ['void *', 'void *', 'void *', 'void *'],
    ggml_concat: ['void *', 'void *', 'void *', 'void *', 'int'],
    ggml_flash_attn_ext: ['void *', 'void *', 'void *', 'void *', 'void *', 'void *', 'float', 'float', 'float'],
    ggml_soft_max_ext: ['void *', 'void *', 'void *', 'void *', 'float', 'float'],
    ggml_sum_rows: ['void *', 'void *', 'void *'],
    ggml_permute: ['void *', 'void *', 'void *', 'int', 'int', 'int', 'int'],
    ggml_cont: ['void *', 'void *', 'void *'],
    ggml_reshape_2d: ['void *', 'void *', 'void *', 'int64_t', 'int64_t'],
    ggml_reshape_3d: ['void *', 'void *', 'void *', 'int64_t', 'int64_t', 'int64_t'],
    ggml_reshape_4d: ['void *', 'void *', 'void *', 'int64_t', 'int64_t', 'int64_t', 'int64_t'],
    ggml_view_2d: ['void *', 'void *', 'void *', 'int64_t', 'int64_t', 'size_t', 'size_t'],
    ggml_view_4d: [
      'void *',
      'void *',
      'void *',
      'int64_t',
      'int64_t',
      'int64_t',
      'int64_t',
      'size_t',
      'size_t',
      'size_t',
      'size_t',
    ],
    ggml_new_graph_custom: ['void *', 'void *', 'size_t', 'bool'],
    ggml_build_forward_expand: ['void', 'void *', 'void *'],
    ggml_scale: ['void *', 'void *', 'void *', 'float'],
    ggml_tanh: ['void *', 'void *', 'void *'],
    ggml_geglu_split: ['void *', 'void *', 'void *', 'void *'],
    ggml_swiglu_oai: ['void *', 'void *', 'void *', 'void *', 'float', 'float'],
    ggml_flash_attn_ext_add_sinks: ['void', 'void *', 'void *'],
    ggml_soft_max_add_sinks: ['void', 'void *', 'void *'],
    ggml_soft_max: ['void *', 'void *', 'void *'],
    ggml_argsort_top_k: ['void *', 'void *', 'void *', 'int'],
    ggml_mul_mat_id: ['void *', 'void *', 'void *', 'void *', 'void *'],
    ggml_add_id: ['void *', 'void *', 'void *', 'void *', 'void *'],
    ggml_prec_set_acc: ['bool', 'void *', 'int'],
    ggml_graph_n_nodes: ['int', 'void *'],
    ggml_graph_node: ['void *', 'void *', 'int'],
    ggml_op_desc: ['const char *', 'void *'],
    ggml_gallocr_new: ['void *', 'void *'],
    ggml_gallocr_free: ['void', 'void *'],
    ggml_gallocr_alloc_graph: ['bool', 'void *', 'void *'],
    ggml_gallocr_get_buffer_size: ['size_t', 'void *', 'int'],
    ggml_backend_alloc_ctx_tensors_from_buft: ['void *', 'void *', 'void *'],
    ggml_backend_buffer_free: ['void', 'void *'],
    ggml_backend_buffer_clear: ['void', 'void *', 'uint8_t'],
    ggml_backend_buffer_set_usage: ['void', 'void *', 'int'],
    ggml_backend_buffer_get_size: ['size_t', 'void *'],
    ggml_backend_free: ['void', 'void *'],
    ggml_backend_graph_compute: ['int', 'void *', 'void *'],
    ggml_backend_tensor_set: ['void', 'void *', 'void *', 'size_t', 'size_t'],
    ggml_backend_tensor_get: ['void', 'void *', 'void *', 'size_t', 'size_t'],
    ggml_backend_dev_name: ['const char *', 'void *'],
    ggml_backend_dev_description: ['const char *', 'void *'],
    ggml_backend_dev_type: ['int', 'void *'],
    ggml_backend_dev_init: ['void *', 'void *', 'const char *'],
    ggml_backend_dev_buffer_type: ['void *', 'void *'],
    ggml_backend_dev_backend_reg: ['void *', 'void *'],
    ggml_backend_dev_buffer_from_host_ptr: ['void *', 'void *', 'void *', 'size_t', 'size_t'],
    ggml_backend_tensor_alloc: ['int', 'void *', 'void *', 'void *'],
    ggml_backend_reg_get_proc_address: ['void *', 'void *', 'const char *'],
    ggml_backend_dev_supports_op: ['bool', 'void *', 'void *'],
    ggml_backend_dev_memory: ['void', 'void *', 'void *', 'void *'],
  },
  main: {
    ggml_backend_load_all_from_path: ['void', 'const char *'],
    ggml_backend_dev_count: ['size_t'],
    ggml_backend_dev_get: ['void *', 'size_t'],
  },
};

export const CONSTANTS = {
  GGML_TYPE_F32: 0,
  GGML_TYPE_F16: 1,
  GGML_TYPE_BF16: 30,
  GGML_TYPE_Q4_0: 2,
  GGML_TYPE_Q8_0: 8,
  GGML_TYPE_I32: 26,
  GGML_ROPE_TYPE_NORMAL: 0,
  GGML_ROPE_TYPE_NEOX: 2,
  GGML_STATUS_SUCCESS: 0,
  GGML_PREC_F32: 10,
  GGML_BACKEND_DEVICE_TYPE_CPU: 0,
  GGML_BACKEND_DEVICE_TYPE_GPU: 1,
  GGML_BACKEND_DEVICE_TYPE_IGPU: 2,
  GGML_BACKEND_BUFFER_USAGE_WEIGHTS: 1,
} as const;

export interface GgmlFunctions {
  ggml_version(): string;
  ggml_commit(): string;
  ggml_init(params: InitParams): Pointer;
  ggml_free(ctx: Pointer | null): void;
  ggml_tensor_overhead(): number;
  ggml_graph_overhead_custom(size: number, grads: boolean): number;
  ggml_row_size(type: number, ne: number): number;
  ggml_nbytes(tensor: Pointer | null): number;
  ggml_new_tensor_1d(ctx: Pointer | null, type: number, ne0: number): Pointer;
  ggml_new_tensor_2d(ctx: Pointer | null, type: number, ne0: number, ne1: number): Pointer;
  ggml_new_tensor_3d(ctx: Pointer | null, type: number, ne0: number, ne1: number, ne2: number): Pointer;
  ggml_new_tensor_4d(ctx: Pointer | null, type: number, ne0: number, ne1: number, ne2: number, ne3: number): Pointer;
  ggml_set_input(tensor: Pointer | null): void;
  ggml_set_output(tensor: Pointer | null): void;
  ggml_log_set(log_callback: Pointer | null, user_data: Memory): void;
  ggml_quantize_chunk(
    type: number,
    src: Memory,
    dst: Memory,
    start: number,
    nrows: number,
    n_per_row: number,
    imatrix: Memory,
  ): number;
  ggml_get_rows(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_set_rows(ctx: Pointer | null, a: Pointer | null, b: Pointer | null, c: Pointer | null): Pointer;
  ggml_mul_mat(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_add(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_mul(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_rms_norm(ctx: Pointer | null, a: Pointer | null, eps: number): Pointer;
  ggml_rope_ext(
    ctx: Pointer | null,
    a: Pointer | null,
    b: Pointer | null,
    c: Pointer | null,
    n_dims: number,
    mode: number,
    n_ctx_orig: number,
    freq_base: number,
    freq_scale: number,
    ext_factor: number,
    attn_factor: number,
    beta_fast: number,
    beta_slow: number,
  ): Pointer;
  ggml_swiglu_split(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_concat(ctx: Pointer | null, a: Pointer | null, b: Pointer | null, dim: number): Pointer;
  ggml_flash_attn_ext(
    ctx: Pointer | null,
    q: Pointer | null,
    k: Pointer | null,
    v: Pointer | null,
    mask: Pointer | null,
    scale: number,
    max_bias: number,
    logit_softcap: number,
  ): Pointer;
  ggml_soft_max_ext(
    ctx: Pointer | null,
    a: Pointer | null,
    mask: Pointer | null,
    scale: number,
    max_bias: number,
  ): Pointer;
  ggml_sum_rows(ctx: Pointer | null, a: Pointer | null): Pointer;
  ggml_permute(
    ctx: Pointer | null,
    a: Pointer | null,
    axis0: number,
    axis1: number,
    axis2: number,
    axis3: number,
  ): Pointer;
  ggml_cont(ctx: Pointer | null, a: Pointer | null): Pointer;
  ggml_reshape_2d(ctx: Pointer | null, a: Pointer | null, ne0: number, ne1: number): Pointer;
  ggml_reshape_3d(ctx: Pointer | null, a: Pointer | null, ne0: number, ne1: number, ne2: number): Pointer;
  ggml_reshape_4d(ctx: Pointer | null, a: Pointer | null, ne0: number, ne1: number, ne2: number, ne3: number): Pointer;
  ggml_view_2d(ctx: Pointer | null, a: Pointer | null, ne0: number, ne1: number, nb1: number, offset: number): Pointer;
  ggml_view_4d(
    ctx: Pointer | null,
    a: Pointer | null,
    ne0: number,
    ne1: number,
    ne2: number,
    ne3: number,
    nb1: number,
    nb2: number,
    nb3: number,
    offset: number,
  ): Pointer;
  ggml_new_graph_custom(ctx: Pointer | null, size: number, grads: boolean): Pointer;
  ggml_build_forward_expand(cgraph: Pointer | null, tensor: Pointer | null): void;
  ggml_scale(ctx: Pointer | null, a: Pointer | null, s: number): Pointer;
  ggml_tanh(ctx: Pointer | null, a: Pointer | null): Pointer;
  ggml_geglu_split(ctx: Pointer | null, a: Pointer | null, b: Pointer | null): Pointer;
  ggml_swiglu_oai(ctx: Pointer | null, a: Pointer | null, b: Pointer | null, alpha: number, limit: number): Pointer;
  ggml_flash_attn_ext_add_sinks(a: Pointer | null, sinks: Pointer | null): void;
  ggml_soft_max_add_sinks(a: Pointer | null, sinks: Pointer | null): void;
  ggml_soft_max(ctx: Pointer | null, a: Pointer | null): Pointer;
  ggml_argsort_top_k(ctx: Pointer | null, a: Pointer | null, k: number): Pointer;
  ggml_mul_mat_id(ctx: Pointer | null, as: Pointer | null, b: Pointer | null, ids: Pointer | null): Pointer;
  ggml_add_id(ctx: Pointer | null, a: Pointer | null, b: Pointer | null, ids: Pointer | null): Pointer;
  ggml_prec_set_acc(a: Pointer | null, prec: number): boolean;
  ggml_graph_n_nodes(cgraph: Pointer | null): number;
  ggml_graph_node(cgraph: Pointer | null, i: number): Pointer;
  ggml_op_desc(t: Pointer | null): string;
  ggml_gallocr_new(buft: Pointer | null): Pointer;
  ggml_gallocr_free(galloc: Pointer | null): void;
  ggml_gallocr_alloc_graph(galloc: Pointer | null, graph: Pointer | null): boolean;
  ggml_gallocr_get_buffer_size(galloc: Pointer | null, buffer_id: number): number;
  ggml_backend_alloc_ctx_tensors_from_buft(ctx: Pointer | null, buft: Pointer | null): Pointer;
  ggml_backend_buffer_free(buffer: Pointer | null): void;
  ggml_backend_buffer_clear(buffer: Pointer | null, value: number): void;
  ggml_backend_buffer_set_usage(buffer: Pointer | null, usage: number): void;
  ggml_backend_buffer_get_size(buffer: Pointer | null): number;
  ggml_backend_free(backend: Pointer | null): void;
  ggml_backend_graph_compute(backend: Pointer | null, cgraph: Pointer | null): number;
  ggml_backend_tensor_set(tensor: Pointer | null, data: Memory, offset: number, size: number): void;
  ggml_backend_tensor_get(tensor: Pointer | null, data: Memory, offset: number, size: number): void;
  ggml_backend_dev_name(device: Pointer | null): string;
  ggml_backend_dev_description(device: Pointer | null): string;
  ggml_backend_dev_type(device: Pointer | null): number;
  ggml_backend_dev_init(device: Pointer | null, params: string | null): Pointer;
  ggml_backend_dev_buffer_type(device: Pointer | null): Pointer;
  ggml_backend_dev_backend_reg(device: Pointer | null): Pointer;
  ggml_backend_dev_buffer_from_host_ptr(
    device: Pointer | null,
    ptr: Memory,
    size: number,
    max_tensor_size: number,
  ): Pointer;
  ggml_backend_tensor_alloc(buffer: Pointer | null, tensor: Pointer | null, addr: Memory): number;
  ggml_backend_reg_get_proc_address(reg: Pointer | null, name: string | null): Pointer | null;
  ggml_backend_dev_supports_op(device: Pointer | null, op: Pointer | null): boolean;
  ggml_backend_dev_memory(device: Pointer | null, free: Memory, total: Memory): void;
  ggml_backend_load_all_from_path(dir_path: string | null): void;
  ggml_backend_dev_count(): number;
  ggml_backend_dev_get(index: number): Pointer;
}
