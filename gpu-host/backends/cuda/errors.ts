import { InvalidInput } from '../check.ts';

/** Reasons why a model cannot start on a card, or stops there. */
export type CudaErrorCode =
  /** The addon does not exist, or cannot be loaded. */
  | 'not-built'
  /** No such card, or no driver. */
  | 'no-device'
  /** The device has too little memory; the message states how much it needs. */
  | 'out-of-memory'
  /** The card failed: this process can no longer compute on it. */
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

/** Converts an addon's error to a `CudaError`, or to `InvalidInput` for input that it refused; returns other errors unchanged. */
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
