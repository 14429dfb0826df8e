import type { HandlerError, Outcome as WitOutcome } from '#wit/generated/host.ts';

export type { HandlerError };

/** Case of a handler error, for programs to match. */
export type HandlerErrorTag = HandlerError['tag'];

/** A WIT `result` in JavaScript. Promises of outcomes always resolve and never reject. */
export type Outcome<T> = WitOutcome<T, HandlerError>;

/** The only constructor of handler errors. */
export function handlerError(tag: HandlerErrorTag, val: string): HandlerError {
  return { tag, val };
}

export function ok<T>(val: T): Outcome<T> {
  return { tag: 'ok', val };
}

export function err(error: HandlerError): { readonly tag: 'err'; readonly val: HandlerError } {
  return { tag: 'err', val: error };
}

/** Name of the quota of KV pages in `limit-exceeded` errors. */
export const PAGE_QUOTA = 'kv-pages';

/** Reason why a peer ended the connection. Codes travel in the `error` frame. */
export type ProtocolFaultCode =
  /** The frame or a field of it ends before its announced length. */
  | 'truncated'
  /** A frame longer than `MAX_FRAME_BYTES`. */
  | 'oversized'
  /** Another protocol version. */
  | 'version'
  /** A kind, operation or field value that does not exist. */
  | 'malformed'
  /** A frame that is not allowed at this point, such as calls before the hello. */
  | 'unexpected'
  /** No hello in time. */
  | 'timeout'
  /** The peer does not read its results, or left more calls pending than allowed. */
  | 'overrun'
  /** A fault of the host itself. */
  | 'internal'
  /** The process is going down. */
  | 'shutdown';

/** Thrown while decoding; the connection's owner turns it into an `error` frame and ends that connection only. */
export class ProtocolFault extends Error {
  override readonly name = 'ProtocolFault';
  readonly code: ProtocolFaultCode;
  constructor(code: ProtocolFaultCode, message: string) {
    super(message);
    this.code = code;
  }
}

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;
/** Maximum characters of a malformed name in an error. */
const MAX_SHOWN = 40;

/**
 * The error for a malformed name of an export, a KV file or an adapter (wit/allocate.wit); null for a well-formed name.
 * Names are not paths: `..` and `//` mean nothing.
 */
export function refuseName(name: string): HandlerError | null {
  if (NAME.test(name)) return null;
  // `JSON.stringify` copies. A slice alone would keep all of the text in memory, which may be many MiB.
  const shown = name.length > MAX_SHOWN ? `${JSON.stringify(name.slice(0, MAX_SHOWN))}…` : JSON.stringify(name);
  return handlerError('invalid-argument', `${shown} is not a name: 1 to 128 letters, digits, ".", "_", "-" and "/"`);
}
