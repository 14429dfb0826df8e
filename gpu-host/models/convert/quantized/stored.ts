import { ModelError } from '../../errors.ts';
import { isFloat, readTensor, type StoredTensor } from '../../safetensors.ts';

export const MISMATCH =
  'the weights and "quantization_config" in config.json do not belong together, or a shard is missing';

/** The tensors of a checkpoint, by their names in its files. Records which of them a conversion asked for. */
export class Stored {
  readonly #tensors: ReadonlyMap<string, StoredTensor>;
  readonly #unused: Set<string>;

  constructor(tensors: ReadonlyMap<string, StoredTensor>) {
    this.#tensors = tensors;
    this.#unused = new Set(tensors.keys());
  }

  find(name: string): StoredTensor | undefined {
    this.#unused.delete(name);
    return this.#tensors.get(name);
  }

  /**
   * @param of name of the matrix that needs the tensor, if the names differ
   * @throws ModelError `missing-tensor`
   */
  require(name: string, of?: string): StoredTensor {
    const found = this.find(name);
    if (found !== undefined) return found;
    throw new ModelError('missing-tensor', `the weights lack "${name}"${of === undefined ? '' : ` of "${of}"`}`, {
      hint: MISMATCH,
    });
  }

  /**
   * The tensor `name`, which replaces `other`; null when the checkpoint has `other` instead.
   *
   * @throws ModelError `malformed-weights` when it has both, `missing-tensor` when it has neither
   */
  findInstead(name: string, other: string): StoredTensor | null {
    const found = this.find(name);
    const hasOther = this.#tensors.has(other);
    if (found !== undefined && !hasOther) return found;
    if (found === undefined && hasOther) return null;
    throw found === undefined
      ? new ModelError('missing-tensor', `the weights lack "${name}", and "${other}" in its place`, { hint: MISMATCH })
      : new ModelError('malformed-weights', `the weights have both "${name}" and "${other}"`, { hint: MISMATCH });
  }

  /** Tensors that the conversion did not use. */
  unused(): [name: string, tensor: StoredTensor][] {
    return [...this.#tensors].filter(([name]) => this.#unused.has(name));
  }
}

/** @throws ModelError `wrong-shape` when the tensor has another type, or none of the shapes */
export function expectStored(
  name: string,
  tensor: StoredTensor,
  type: 'floats' | StoredTensor['dtype'],
  ...shapes: (readonly number[])[]
): void {
  const { dtype, shape } = tensor;
  const fitsType = type === 'floats' ? isFloat(tensor) : dtype === type;
  if (fitsType && shapes.some((each) => String(each) === String(shape) && each.length === shape.length)) return;
  const wanted = shapes.map((each) => `[${each.join(', ')}]`).join(' or ');
  throw new ModelError(
    'wrong-shape',
    `"${name}" is ${dtype} of shape [${shape.join(', ')}]; config.json implies ${type === 'floats' ? 'F32, F16 or BF16' : type} of shape ${wanted}`,
  );
}

/**
 * Reads the scales of a matrix.
 *
 * @param largest magnitude of a value before it is scaled
 * @throws ModelError `malformed-weights` when a scale, or its product with `largest`, is not finite in 32 bits
 */
export function readScales(name: string, tensor: StoredTensor, largest: number): Float32Array {
  if (!isFloat(tensor)) throw new TypeError(`"${name}" has no floats.`);
  const scales = readTensor(tensor);
  const wrongIndex = scales.findIndex((scale) => !Number.isFinite(Math.fround(scale * largest)));
  if (wrongIndex < 0) return scales;
  throw new ModelError('malformed-weights', `"${name}" has the scale ${scales[wrongIndex]} at place ${wrongIndex}`, {
    hint: 'scales must be finite: the checkpoint is damaged, fetch it again',
  });
}
