import { ModelError } from '#gpu-host/models/errors.ts';
import { type Ggml, type GgmlDevice, tooLittleMemory } from './library.ts';
import { CONSTANTS, type Pointer } from './signatures.ts';

const { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_I32 } = CONSTANTS;
/** Largest error of a value; the values are about 1. A GPU may round the factors of products to 16 bits. */
const TOLERANCE = 1e-3;
const GPU_TOLERANCE = 1e-2;

/** A small computation: its result, and the same numbers from plain loops. */
interface Case {
  readonly name: string;
  readonly result: Pointer;
  readonly expected: readonly number[];
}

const passed = new Map<GgmlDevice, Promise<void>>();

/**
 * Computes small examples through every kind of signature, once in a process for each device. A signature that does not fit the library would pass
 * arguments in wrong places, and corrupt memory in silence. On a GPU, the examples also find drivers that compute wrongly.
 *
 * @throws ModelError `unsupported-model` with the function whose result is wrong
 */
export function selfTest(ggml: Ggml, device: GgmlDevice): Promise<void> {
  const known = passed.get(device) ?? compute(ggml, device);
  passed.set(device, known);
  return known;
}

async function compute(ggml: Ggml, device: GgmlDevice): Promise<void> {
  const { functions: f } = ggml;
  const tensorCount = 128;
  const context = ggml.context(tensorCount, f.ggml_graph_overhead_custom(tensorCount, false));
  const graph = f.ggml_new_graph_custom(context, tensorCount, false);
  const backend = ggml.engine(device);
  const inputs: { readonly tensor: Pointer; readonly values: ArrayBufferView }[] = [];
  const input = (type: number, values: ArrayBufferView, ...[a, b = 1, c = 1, d = 1]: number[]): Pointer => {
    const tensor = f.ggml_new_tensor_4d(context, type, a as number, b, c, d);
    inputs.push({ tensor, values });
    return tensor;
  };
  const cases = casesOf(ggml, context, input).filter(({ result }) => ggml.supports(device, result));
  for (const { result } of cases) f.ggml_build_forward_expand(graph, result);
  const buffer = f.ggml_backend_alloc_ctx_tensors_from_buft(context, f.ggml_backend_dev_buffer_type(device.handle));
  try {
    if (!buffer) throw tooLittleMemory(ggml, device, 'small examples');
    for (const { tensor, values } of inputs) f.ggml_backend_tensor_set(tensor, values, 0, values.byteLength);
    await ggml.compute(backend, graph);
    for (const { name, result, expected } of cases) {
      const bytes = f.ggml_nbytes(result);
      const values = new Float32Array(expected.length);
      if (bytes === values.byteLength) f.ggml_backend_tensor_get(result, values, 0, bytes);
      const tolerance = device.isCpu ? TOLERANCE : GPU_TOLERANCE;
      const isRight = values.every((value, i) => Math.abs(value - (expected[i] as number)) <= tolerance);
      if (bytes !== values.byteLength || !isRight)
        throw new ModelError('unsupported-model', `ggml computes ${name} wrongly on ${device.description}`, {
          hint: device.isCpu
            ? 'use backend = "onnx", and report the machine'
            : 'compute on the CPU, or try another driver of the GPU',
        });
    }
  } finally {
    if (buffer) f.ggml_backend_buffer_free(buffer);
    f.ggml_backend_free(backend);
    f.ggml_free(context);
  }
}

type MakeInput = (type: number, values: ArrayBufferView, ...sizes: number[]) => Pointer;

function casesOf({ functions: f }: Ggml, context: Pointer, input: MakeInput): Case[] {
  const wave = (count: number, step: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(1 + i * step));
  const [columns, rows] = [8, 4];
  const a = wave(columns * rows, 0.7);
  const b = wave(columns * rows, 1.3);
  const w = wave(columns, 0.4);
  const at = (values: Float32Array, row: number, column: number) => values[row * columns + column] as number;
  const matrix = (value: (row: number, column: number) => number, width = columns) =>
    Array.from({ length: rows * width }, (_, i) => value(Math.floor(i / width), i % width));
  const dot = (row: number, other: number) =>
    range(columns).reduce((sum, k) => sum + at(a, row, k) * at(b, other, k), 0);
  const [x, y] = [input(GGML_TYPE_F32, a, columns, rows), input(GGML_TYPE_F32, b, columns, rows)];
  const weight = input(GGML_TYPE_F32, w, columns);
  const order = [2, 0, 3, 1];
  const indices = input(GGML_TYPE_I32, Int32Array.from(order), rows);
  const square = (row: number) => range(columns).reduce((sum, k) => sum + at(a, row, k) ** 2, 0) / columns;
  const epsilon = 0.25;

  const positions = [0, 3, 7, 10];
  const divisors = [1, 2.5, 6, 20];
  const rotated = f.ggml_rope_ext(
    ...([context, f.ggml_reshape_3d(context, x, columns, 1, rows)] as const),
    ...([
      input(GGML_TYPE_I32, Int32Array.from(positions), rows),
      input(GGML_TYPE_F32, Float32Array.from(divisors), 4),
    ] as const),
    ...([columns, CONSTANTS.GGML_ROPE_TYPE_NEOX, 0, 1, 1, 0, 1, 0, 0] as const),
  );
  const half = columns / 2;
  const turn = (row: number, column: number) => {
    const angle = (positions[row] as number) / (divisors[column % half] as number);
    const [first, second] = [at(a, row, column % half), at(a, row, (column % half) + half)];
    return column < half
      ? first * Math.cos(angle) - second * Math.sin(angle)
      : second * Math.cos(angle) + first * Math.sin(angle);
  };

  // Attention of 4 queries over 4 keys, of which a query sees itself and those before it. The keys are the values too.
  const scale = 0.3;
  const visible = Uint16Array.from(matrix((row, column) => (column <= row ? 0 : 0xfc00), rows));
  const mask = input(GGML_TYPE_F16, visible, rows, rows);
  const powers = (row: number) => range(row + 1).map((key) => Math.exp(scale * dot(row, key)));
  const shares = (row: number) => powers(row).map((power) => power / powers(row).reduce((sum, each) => sum + each, 0));
  const attended = matrix((row, column) =>
    shares(row).reduce((sum, share, key) => sum + share * at(b, key, column), 0),
  );
  const scores = f.ggml_mul_mat(context, y, x);
  const transposed = f.ggml_cont(context, f.ggml_permute(context, x, 1, 0, 2, 3));
  const rowBytes = columns * 4;
  return [
    { name: 'ggml_mul_mat', result: scores, expected: matrix((row, column) => dot(row, column), rows) },
    {
      name: 'ggml_add and ggml_mul',
      result: f.ggml_add(context, f.ggml_mul(context, x, weight), y),
      expected: matrix((row, column) => at(a, row, column) * (w[column] as number) + at(b, row, column)),
    },
    {
      name: 'ggml_get_rows',
      result: f.ggml_get_rows(context, x, indices),
      expected: matrix((row, column) => at(a, order[row] as number, column)),
    },
    {
      name: 'ggml_set_rows',
      result: f.ggml_set_rows(context, f.ggml_cont(context, x), y, indices),
      expected: matrix((row, column) => at(b, order.indexOf(row), column)),
    },
    {
      name: 'ggml_rms_norm',
      result: f.ggml_rms_norm(context, x, epsilon),
      expected: matrix((row, column) => at(a, row, column) / Math.sqrt(square(row) + epsilon)),
    },
    { name: 'ggml_rope_ext', result: rotated, expected: matrix(turn) },
    {
      name: 'ggml_swiglu_split',
      result: f.ggml_swiglu_split(context, x, y),
      expected: matrix((row, column) => {
        const gate = at(a, row, column);
        return (gate / (1 + Math.exp(-gate))) * at(b, row, column);
      }),
    },
    {
      name: 'ggml_concat',
      result: f.ggml_concat(context, x, y, 1),
      expected: [...a, ...b],
    },
    {
      name: 'ggml_soft_max_ext',
      result: f.ggml_soft_max_ext(context, scores, mask, scale, 0),
      expected: matrix((row, column) => shares(row)[column] ?? 0, rows),
    },
    {
      name: 'ggml_flash_attn_ext',
      result: f.ggml_flash_attn_ext(context, x, y, y, mask, scale, 0, 0),
      expected: attended,
    },
    {
      name: 'ggml_permute, ggml_cont and ggml_sum_rows',
      result: f.ggml_sum_rows(context, transposed),
      expected: range(columns).map((column) => range(rows).reduce((sum, row) => sum + at(a, row, column), 0)),
    },
    {
      name: 'ggml_view_2d',
      result: f.ggml_cont(context, f.ggml_view_2d(context, x, 3, 2, rowBytes, rowBytes + 8)),
      expected: [1, 2].flatMap((row) => [2, 3, 4].map((column) => at(a, row, column))),
    },
    {
      name: 'ggml_view_4d and ggml_reshape_4d',
      result: f.ggml_cont(
        context,
        f.ggml_view_4d(
          ...([context, f.ggml_reshape_4d(context, x, 2, 4, 2, 2), 2, 2, 1, 2] as const),
          ...([8, rowBytes, 2 * rowBytes, rowBytes + 8] as const),
        ),
      ),
      expected: [1, 3].flatMap((row) => [2, 3, 4, 5].map((column) => at(a, row, column))),
    },
  ];
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
