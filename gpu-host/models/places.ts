import type { ModelConfig } from './config.ts';
import { ModelError } from './errors.ts';
import type { StoredNames } from './families/family.ts';
import { familyOfType } from './families/index.ts';
import type { StoredRange } from './safetensors.ts';
import { type BlockedTensor, isBlocked, type TensorInfo } from './tensors.ts';

/** Where a file stores one of our tensors: the file's tensor, and the part of it that is ours. */
export interface Place {
  readonly name: string;
  /** Shape of the file's tensor. */
  readonly shape: readonly number[];
  /** Our part along the file's first dimension. The whole tensor when `parts` equals that dimension. */
  readonly first: number;
  readonly parts: number;
}

/** How a kind of file names tensors. */
export interface Layout extends StoredNames {
  /** Prefix of a layer's tensors. */
  layer(index: number): string;
  /** Names outside layers: ours → the file's. */
  readonly outside: Readonly<Record<string, string>>;
  /** Modules of experts that the file stores in one tensor for all experts: our projection → the file's module. */
  readonly stacks: Readonly<Record<string, string>>;
}

/** The names of Hugging Face's checkpoints, which are ours but for those that the family changes. */
export function checkpointLayout({ family }: ModelConfig): Layout {
  return { layer: (index) => `model.layers.${index}.`, outside: {}, stacks: {}, ...familyOfType(family)?.names };
}

/** Where a file of this layout stores each of `expected`, by our name. */
export function placesOf(
  expected: readonly (readonly [name: string, shape: readonly number[]])[],
  config: ModelConfig,
  layout: Layout,
): Map<string, Place> {
  const { modules = {}, fused = {} } = layout;
  const shapes = new Map(expected);
  const fusedOf = new Map(
    Object.entries(fused).flatMap(([stored, parts]) => parts.map((part) => [part, { stored, parts }])),
  );
  const place = (name: string, shape: readonly number[]): Place => {
    const [rows = 1] = shape;
    const whole = (stored: string) => ({ name: stored, shape, first: 0, parts: rows });
    const [, layer, rest = ''] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
    if (layer === undefined) return whole(layout.outside[name] ?? name);
    const prefix = layout.layer(Number(layer));
    const [, module = rest, suffix = ''] = /^(.+?)(\.weight|\.bias)$/.exec(rest) ?? [];
    const [, expert, projection = ''] = /^mlp\.experts\.(\d+)\.(.+)$/.exec(module) ?? [];
    const stack = layout.stacks[projection];
    if (expert !== undefined && stack !== undefined && config.experts !== null)
      return {
        name: `${prefix}${stack}${suffix}`,
        shape: [config.experts.count, ...shape],
        first: Number(expert),
        parts: 1,
      };
    const joined = fusedOf.get(module);
    if (joined === undefined) return whole(`${prefix}${modules[module] ?? module}${suffix}`);
    const rowsOf = (part: string) => shapes.get(`model.layers.${layer}.${part}${suffix}`)?.[0] ?? 0;
    const before = joined.parts.slice(0, joined.parts.indexOf(module));
    const total = (parts: readonly string[]) => parts.reduce((sum, part) => sum + rowsOf(part), 0);
    return {
      name: `${prefix}${joined.stored}${suffix}`,
      ...{ shape: [total(joined.parts), ...shape.slice(1)], first: total(before), parts: rows },
    };
  };
  return new Map(expected.map(([name, shape]) => [name, place(name, shape)]));
}

/** @throws ModelError `wrong-shape` when the file's tensor has another shape than the place expects */
export function checkPlace({ name, shape }: Place, found: readonly number[]): void {
  if (String(found) === String(shape)) return;
  throw new ModelError(
    'wrong-shape',
    `"${name}" has shape [${found.join(', ')}], the configuration implies [${shape.join(', ')}]`,
  );
}

/** A place's part of a tensor's location. */
export function partOf(info: TensorInfo, place: Place): TensorInfo {
  if (place.parts === info.shape[0] && place.first === 0) return info;
  const { first, parts } = place;
  if (!isBlocked(info)) return sliced(info, first, parts);
  return {
    ...info,
    shape: [parts, ...info.shape.slice(1)],
    ...{ levels: sliced(info.levels, first, parts), scales: sliced(info.scales, first, parts) },
    zeros: info.zeros && sliced(info.zeros, first, parts),
  } satisfies BlockedTensor;
}

function sliced<Tensor extends StoredRange & { readonly shape: readonly number[] }>(
  tensor: Tensor,
  first: number,
  parts: number,
): Tensor {
  const [count = 1, ...rest] = tensor.shape;
  const partBytes = tensor.bytes / count;
  return { ...tensor, shape: [parts, ...rest], offset: tensor.offset + first * partBytes, bytes: parts * partBytes };
}
