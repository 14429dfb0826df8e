import { InvalidInput } from '../check.ts';

/** What keeps a model from running on a card, or ends it there. */
export type CudaErrorCode =
  /** The addon is not there, or cannot be loaded. */
  | 'not-built'
  /** No such card, or no driver. */
  | 'no-device'
  /** The device has no room; the message says how much there would have to be. */
  | 'out-of-memory'
  /** The card failed: nothing can be computed on it by this process any more. */
  | 'device-lost'
  /** A fault of the addon itself. */
  | 'internal'
  /** The backend was disposed of. */
  | 'disposed';

export class CudaError extends Error {
  override readonly name = 'CudaError';
  readonly code: CudaErrorCode;

  constructor(code: CudaErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** What the addon threw, as an error of this room; `InvalidInput` for input that it refused. */
export function fromAddon(caught: unknown): unknown {
  if (!(caught instanceof Error) || !('code' in caught)) return caught;
  const { message, code } = caught;
  switch (code) {
    case 'invalid':
      return new InvalidInput(message);
    case 'cuda':
      return new CudaError('device-lost', message, { cause: caught });
    case 'no-device':
    case 'internal':
    case 'out-of-memory':
    case 'disposed':
      return new CudaError(code, message, { cause: caught });
    default:
      return caught;
  }
}
