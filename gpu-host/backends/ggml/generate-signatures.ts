/**
 * Writes `signatures.ts` from ggml's public headers:
 *
 *     node gpu-host/backends/ggml/generate-signatures.ts DIRECTORY
 *
 * The directory has `ggml.h`, `ggml-alloc.h` and `ggml-backend.h` of the commit that `library.ts` pins. The source tree is the git bundle
 * `llama/gitRelease.bundle` in the npm package `node-llama-cpp` of the same version as the packages with the libraries.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The functions that the backend calls, by header. */
const FUNCTIONS = {
  'ggml.h': [
    ...['version', 'commit', 'init', 'free', 'tensor_overhead', 'graph_overhead_custom', 'row_size', 'nbytes'],
    ...[
      'new_tensor_1d',
      'new_tensor_2d',
      'new_tensor_3d',
      'new_tensor_4d',
      'set_input',
      'set_output',
      'log_set',
      'quantize_chunk',
    ],
    ...['get_rows', 'set_rows', 'mul_mat', 'add', 'mul', 'rms_norm', 'rope_ext', 'swiglu_split', 'concat'],
    ...['flash_attn_ext', 'soft_max_ext', 'sum_rows', 'permute', 'cont', 'reshape_2d', 'reshape_3d', 'reshape_4d'],
    ...['view_2d', 'view_4d', 'new_graph_custom', 'build_forward_expand', 'scale', 'tanh', 'geglu_split', 'swiglu_oai'],
    ...['flash_attn_ext_add_sinks', 'soft_max_add_sinks', 'soft_max', 'argsort_top_k', 'mul_mat_id', 'add_id'],
    ...['prec_set_acc', 'graph_n_nodes', 'graph_node', 'op_desc'],
  ].map((name) => `ggml_${name}`),
  'ggml-alloc.h': [
    ...['gallocr_new', 'gallocr_free', 'gallocr_alloc_graph', 'gallocr_get_buffer_size'],
    ...['backend_alloc_ctx_tensors_from_buft'],
  ].map((name) => `ggml_${name}`),
  'ggml-backend.h': [
    ...['buffer_free', 'buffer_clear', 'buffer_set_usage', 'buffer_get_size'],
    ...['free', 'graph_compute', 'tensor_set', 'tensor_get', 'dev_name', 'dev_description', 'dev_type', 'dev_init'],
    ...['dev_buffer_type', 'dev_backend_reg', 'dev_buffer_from_host_ptr', 'tensor_alloc', 'reg_get_proc_address'],
    ...['dev_supports_op', 'dev_memory', 'load_all_from_path', 'dev_count', 'dev_get'],
  ].map((name) => `ggml_backend_${name}`),
} as const;

/** Functions of `libggml`; those of the other library, `libggml-base`, are the rest. */
const OF_MAIN_LIBRARY = new Set(['load_all_from_path', 'dev_count', 'dev_get'].map((name) => `ggml_backend_${name}`));

/** Enumerators and macros whose values the backend uses. */
const CONSTANTS = [
  ...['F32', 'F16', 'BF16', 'Q4_0', 'Q8_0', 'I32'].map((name) => `GGML_TYPE_${name}`),
  ...['GGML_ROPE_TYPE_NORMAL', 'GGML_ROPE_TYPE_NEOX', 'GGML_STATUS_SUCCESS', 'GGML_PREC_F32'],
  ...['CPU', 'GPU', 'IGPU'].map((type) => `GGML_BACKEND_DEVICE_TYPE_${type}`),
  ...['GGML_BACKEND_BUFFER_USAGE_WEIGHTS'],
];

/** Types by value, in the FFI's words and in TypeScript's. Enumerations are `int`, all pointers except texts `void *`. */
const VALUES: Readonly<Record<string, readonly [ffi: string, typescript: string]>> = {
  void: ['void', 'void'],
  bool: ['bool', 'boolean'],
  int: ['int', 'number'],
  int64_t: ['int64_t', 'number'],
  size_t: ['size_t', 'number'],
  uint8_t: ['uint8_t', 'number'],
  float: ['float', 'number'],
  'struct ggml_init_params': ['ggml_init_params', 'InitParams'],
  ggml_log_callback: ['void *', 'Pointer | null'],
};
/** Names of pointer types that end without an asterisk. */
const POINTER_NAMES =
  /^(ggml_backend_(buffer_type_t|buffer_t|dev_t|reg_t|t)|ggml_gallocr_t|struct ggml_(cgraph|tensor|context) \*)$/;

interface Declaration {
  readonly name: string;
  readonly result: string;
  readonly parameters: readonly { readonly name: string; readonly type: string }[];
}

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error('usage: node generate-signatures.ts DIRECTORY');
const headers = new Map(
  [...Object.keys(FUNCTIONS), 'ggml-cpu.h'].map((file) => [
    file,
    withoutComments(readFileSync(join(directory, file), 'utf8')),
  ]),
);
const declarations = Object.entries(FUNCTIONS).flatMap(([file, names]) =>
  names.map((name) => declarationOf(name, headers.get(file) ?? '')),
);
const all = [...headers.values()].join('\n');
writeFileSync(join(import.meta.dirname, 'signatures.ts'), written());

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, ' ').replace(/\/\/[^\n]*/g, ' ');
}

function declarationOf(name: string, text: string): Declaration {
  const found = new RegExp(String.raw`(?:GGML_API|GGML_BACKEND_API)([^;(]*?)\b${name}\s*\(([^;]*)\)\s*;`).exec(text);
  if (!found) throw new Error(`the headers do not declare ${name}`);
  const [, result = '', list = ''] = found;
  const parameters = /^\s*(void)?\s*$/.test(list) ? [] : list.split(',').map(parameterOf);
  return { name, result: plain(result), parameters };
}

function parameterOf(text: string): Declaration['parameters'][number] {
  const [, type = '', name = ''] = /^(.*?)(\w+)$/.exec(plain(text)) ?? [];
  return { type: plain(type), name };
}

function plain(type: string): string {
  return type
    .replace(/\s+/g, ' ')
    .replace(/ ?\* ?/g, ' *')
    .trim();
}

function typeOf(type: string, isResult: boolean): readonly [ffi: string, typescript: string] {
  const value = VALUES[type];
  if (value) return value;
  if (/^enum \w+$/.test(type)) return ['int', 'number'];
  if (/^const char \*$/.test(type)) return ['const char *', isResult ? 'string' : 'string | null'];
  // Arrays that a function reads or fills are typed arrays; opaque objects are addresses.
  if (/^(const )?(void|float|int32_t|size_t) \*$/.test(type)) return ['void *', isResult ? 'Pointer | null' : 'Memory'];
  if (type.endsWith('*') || POINTER_NAMES.test(type)) return ['void *', isResult ? 'Pointer' : 'Pointer | null'];
  throw new Error(`the type "${type}" has no mapping`);
}

function constantOf(name: string): number {
  const macro = new RegExp(String.raw`#define\s+${name}\s+(\d+)`).exec(all);
  if (macro) return Number(macro[1]);
  const body = [...all.matchAll(/enum \w+\s*\{([^}]*)\}/g)].find(([, text = '']) =>
    new RegExp(String.raw`\b${name}\b`).test(text),
  );
  if (!body) throw new Error(`the headers do not define ${name}`);
  let next = 0;
  for (const entry of (body[1] ?? '').split(',')) {
    const [, key, value] = /^\s*(\w+)\s*(?:=\s*(-?\d+))?\s*$/.exec(entry) ?? [];
    if (value !== undefined) next = Number(value);
    if (key === name) return next;
    next++;
  }
  throw new Error(`${name} has no value`);
}

function written(): string {
  const rows = (isMain: boolean) =>
    declarations
      .filter(({ name }) => OF_MAIN_LIBRARY.has(name) === isMain)
      .map(({ name, result, parameters }) => {
        const types = [typeOf(result, true)[0], ...parameters.map(({ type }) => typeOf(type, false)[0])];
        return `    ${name}: [${types.map((type) => `'${type}'`).join(', ')}],`;
      });
  const methods = declarations.map(({ name, result, parameters }) => {
    const list = parameters.map((parameter) => `${parameter.name}: ${typeOf(parameter.type, false)[1]}`);
    return `  ${name}(${list.join(', ')}): ${typeOf(result, true)[1]};`;
  });
  const constants = CONSTANTS.map((name) => `  ${name}: ${constantOf(name)},`);
  return `// Written by generate-signatures.ts from ggml's public headers. Do not edit.

/** Address of an object of ggml. */
export type Pointer = bigint;

/** An array that a function reads or fills, or an address. */
export type Memory = ArrayBufferView | Pointer | null;

/** \`struct ggml_init_params\`. */
export interface InitParams {
  readonly mem_size: number;
  readonly mem_buffer: null;
  readonly no_alloc: boolean;
}

/** Result type and parameter types of each function, by library. */
export const SIGNATURES: Readonly<Record<'base' | 'main', Readonly<Record<string, readonly [string, ...string[]]>>>> = {
  base: {
${rows(false).join('\n')}
  },
  main: {
${rows(true).join('\n')}
  },
};

export const CONSTANTS = {
${constants.join('\n')}
} as const;

export interface GgmlFunctions {
${methods.join('\n')}
}
`;
}
