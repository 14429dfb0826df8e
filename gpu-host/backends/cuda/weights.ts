import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';
import type { FloatType } from '#gpu-host/models/safetensors.ts';
import { isBlocked, isPacked } from '../../models/tensors.ts';

/** Place of one tensor for the addon: `count` values from byte `offset` of a file that the addon maps. */
export interface TensorPlace {
  readonly name: string;
  readonly file: string;
  readonly offset: number;
  readonly count: number;
  readonly type: FloatType;
}

/** The places of all weights that a backend computes with, except the vision tower's. */
export function tensorPlaces({ config, tensors }: LoadedModel): TensorPlace[] {
  return expectedTensors(config).map(([name, shape]) => {
    const info = tensors.info(name);
    if (isBlocked(info) || isPacked(info))
      throw new TypeError(`"${name}" is in blocks, which the addon does not read.`);
    const { file, offset, dtype } = info;
    return { name, file, offset, count: shape.reduce((product, dimension) => product * dimension, 1), type: dtype };
  });
}
