/** The cases of the WIT variant `pie:inferlet/types.error`, in the order of their wire codes (`protocol/README.md`): append only. */
export const HANDLER_ERROR_TAGS = [
  'invalid-argument',
  'not-owned',
  'unsupported',
  'not-found',
  'limit-exceeded',
  'context-overflow',
  'dependency-failed',
  'cancelled',
  'deadline-exceeded',
  'terminated',
  'unavailable',
  'closed',
  'internal',
] as const;

/** Why a handler call failed, as a program can match it. */
export type HandlerErrorTag = (typeof HANDLER_ERROR_TAGS)[number];

/** Why a handler call failed: the case, and a text that says what happened and what to do about it. */
export interface HandlerError {
  readonly tag: HandlerErrorTag;
  readonly val: string;
}

/** A WIT `result` as it looks on the host's side. Promises of outcomes resolve always; they never reject. */
export type Outcome<T> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: HandlerError };

/** The one place where handler errors are made. */
export function handlerError(tag: HandlerErrorTag, val: string): HandlerError {
  return { tag, val };
}

export function ok<T>(val: T): Outcome<T> {
  return { tag: 'ok', val };
}

export function err(error: HandlerError): { readonly tag: 'err'; readonly val: HandlerError } {
  return { tag: 'err', val: error };
}

/** Name of the quota of KV pages, as `limit-exceeded` names it when a tenant holds all that it may. */
export const PAGE_QUOTA = 'kv-pages';

/** Why a connection was ended by the side that reads it. Codes travel in the `error` frame. */
export type ProtocolFaultCode =
  /** The frame or a field of it ends before its announced length. */
  | 'truncated'
  /** A frame longer than `MAX_FRAME_BYTES`. */
  | 'oversized'
  /** Another protocol version. */
  | 'version'
  /** A kind, operation or field value that does not exist. */
  | 'malformed'
  /** A frame that may not come at this point, such as calls before the hello. */
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
