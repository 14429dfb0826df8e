import { MAX_EXCUSED_MS } from '#scheduler/policies/silence.ts';

export interface ConnectionLimits {
  /** Maximum wait for the peer's hello, milliseconds. */
  readonly helloMs: number;
  /** Bytes of results that the peer may leave unread for longer than `maxUnreadMs`. */
  readonly maxUnreadBytes: number;
  /**
   * Time, in milliseconds, after which a silent runtime counts as lost. Applies only to runtimes that send signs of life. A host cannot ask the
   * supervisor of the runtime's machine, so this is the maximum time for which a starved runtime is excused. When the machine itself is gone,
   * its kernel answers no keepalives, which ends an idle connection after about 11 s.
   */
  readonly silentMs: number;
  /** Maximum time with more than `maxUnreadBytes` unread, milliseconds: a peer needs a while to read the results of many inferlets. */
  readonly maxUnreadMs: number;
  /** Maximum bytes of unread results of one inferlet before it is ended. */
  readonly maxInferletUnreadBytes: number;
  /** Maximum inferlets open at once. */
  readonly maxInferlets: number;
  /** Interval of usage reports while usage changes, milliseconds. */
  readonly usageMs: number;
  /** Interval of usage reports while an inferlet holds pages and nothing else changes, milliseconds. */
  readonly holdingMs: number;
  /** Time for the calls of one connection in one turn of the event loop, milliseconds. */
  readonly sliceMs: number;
}

export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = {
  helloMs: 5000,
  silentMs: MAX_EXCUSED_MS,
  maxUnreadBytes: 64 * 1024 * 1024,
  maxUnreadMs: 5000,
  maxInferletUnreadBytes: 16 * 1024 * 1024,
  maxInferlets: 65_536,
  usageMs: 250,
  holdingMs: 10_000,
  sliceMs: 4,
};
